"""The user's process: recipes, plans, runs and what they leave. Never imports torch, onnx or a
runtime, nor anything of `convkit.worker`.
"""
