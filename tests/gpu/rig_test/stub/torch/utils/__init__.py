"""What the tests of bench have in place of torch.utils."""
# SPDX-License-Identifier: Apache-2.0
