"""The inputs a converted model is proven on: values, the ladder of cases, probes, and what they may
cost.
"""
