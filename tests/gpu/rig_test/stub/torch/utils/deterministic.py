"""What the tests of bench have in place of torch.utils.deterministic."""
# SPDX-License-Identifier: Apache-2.0
fill_uninitialized_memory = False
