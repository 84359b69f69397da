"""What scripts/gpu-check and scripts/bench have in common: building, running programs, and the tables of both."""
# SPDX-License-Identifier: Apache-2.0
