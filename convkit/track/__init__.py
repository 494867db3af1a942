"""Logs finished runs to MLflow. A run's own folder is the truth; MLflow is where runs are compared."""
