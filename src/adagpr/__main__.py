"""``python -m adagpr`` is the command ``adagpr``."""

from adagpr.cli.main import main

if __name__ == "__main__":
    main()
