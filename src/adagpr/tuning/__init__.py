"""Search for the options of a model: spaces as files, trials in several processes, and a page of what was found."""

from adagpr.tuning.result import StudyResult
from adagpr.tuning.search import StudyProgress
from adagpr.tuning.space import Space, read_space, space_names
from adagpr.tuning.study import tune

__all__ = ["Space", "StudyProgress", "StudyResult", "read_space", "space_names", "tune"]
