"""``sys.monitoring`` that a test tells of jumps and calls, in every version of Python."""

from types import SimpleNamespace

DISABLE = object()
JUMP, PY_START, PY_RETURN = 1, 2, 4


class Monitoring:
    """As the interpreter's, but told of by the test."""

    DISABLE = DISABLE
    events = SimpleNamespace(JUMP=JUMP, PY_START=PY_START, PY_RETURN=PY_RETURN)

    def __init__(self):
        self.tools, self.heard, self.local = {}, {}, {}
        self.everywhere = 0

    def get_tool(self, tool):
        return self.tools.get(tool)

    def use_tool_id(self, tool, name):
        self.tools[tool] = name

    def free_tool_id(self, tool):
        del self.tools[tool]

    def register_callback(self, tool, event, heard):
        self.heard[event] = heard

    def set_events(self, tool, events):
        self.everywhere = events

    def set_local_events(self, tool, code, events):
        self.local[code] = events
