#include "tool/tool.h"
int vp_tool_help(int argc, char **argv) { return 0; }
