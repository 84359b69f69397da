"""Holds a JSON value against a JSON Schema."""
# SPDX-License-Identifier: Apache-2.0
import re

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float)}


def fits(value, rule, where="it", defs=None):
    """Holds a value against a part of the schema: as much of JSON Schema as ours uses, and nothing unknown."""
    assert rule.keys() <= {"$schema", "$defs", "$ref", "title", "description", "type", "required", "properties",
                           "additionalProperties", "items", "const", "enum", "minimum", "pattern"}, rule
    defs = rule.get("$defs", {}) if defs is None else defs
    if "$ref" in rule:
        return fits(value, defs[rule["$ref"].rsplit("/", 1)[1]], where, defs)
    if "type" in rule:
        assert isinstance(value, TYPES[rule["type"]]) and isinstance(value, bool) == (rule["type"] == "boolean"), (where, value)
    assert value == rule.get("const", value), (where, value)
    assert value in rule.get("enum", [value]), (where, value)
    assert "minimum" not in rule or value >= rule["minimum"], (where, value)
    assert "pattern" not in rule or re.search(rule["pattern"], value), (where, value)
    for name in rule.get("required", []):
        assert name in value, (where, name)
    if isinstance(value, dict):
        for name, member in value.items():
            known = rule.get("properties", {}).get(name, rule.get("additionalProperties", {}))
            assert known is not False, (where, name)
            fits(member, known, f"{where}.{name}", defs)
    if isinstance(value, list):
        for i, item in enumerate(value):
            fits(item, rule.get("items", {}), f"{where}[{i}]", defs)
    return None
