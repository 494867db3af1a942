"""From measurements and limits to verdicts. Pure: the same metrics can be judged again under other
limits.
"""
