"""Suppression: time limits that hold rows back (`time_limit`), and the bounds of buffers.

Rows of `until_window_closes` wait in the operator of their windows, which emits them when the windows close
(`kernel.operator.Operator.process`).
"""
