"""What an audit checks of a run's folder, without a network or a model."""
