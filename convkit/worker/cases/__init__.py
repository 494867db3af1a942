"""The inputs on which a converted model is verified: values, the ladder of cases, probes, and their
budget.
"""
