"""Tables of text, and the goals that stand in them."""
# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass

MIB = 1 << 20
# How soon a pause is refused, at most.
REFUSED_MS = 10


@dataclass
class Goal:
    name: str
    figure: str
    goal: str
    holds: bool | None  # None: the rows it needs were not run


def cell(value, scale=1.0, digits=0):
    return "-" if value is None else f"{value / scale:.{digits}f}"


def print_table(lines, left):
    """The first `left` columns to the left, the others to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(text.ljust(width) if i < left else text.rjust(width)
                        for i, (text, width) in enumerate(zip(line, widths))).rstrip())


def print_goals(goals):
    holds = {True: "holds", False: "DOES NOT HOLD", None: "-"}
    print_table([["goal", "figure", "wanted", ""]] +
                [[goal.name, goal.figure, goal.goal, holds[goal.holds]] for goal in goals], 4)
