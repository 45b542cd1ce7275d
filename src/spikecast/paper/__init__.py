"""The paper's experiments as data: its models, and the settings and figures of every row of its tables."""

from spikecast.paper.recipes import MODELS, Model, Published, Row, Table, table, tables

__all__ = ["MODELS", "Model", "Published", "Row", "Table", "table", "tables"]
