"""The page: one HTML file with its style, its script and its data inside, that asks for nothing from anywhere."""

from __future__ import annotations

import json
from html import escape
from string import Template

from spikecast.report.data import ReportData


def page(report: ReportData) -> str:
    return Template("<!doctype html><html lang=en><title>$title</title><pre>$data</pre>").substitute(
        title=escape(report.title), data=escape(json.dumps(report.to_json()))
    )
