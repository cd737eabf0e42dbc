"""AdaGPR as a scikit-learn classifier."""

from adagpr.estimator.classifier import AdaGPRClassifier

__all__ = ["AdaGPRClassifier"]
