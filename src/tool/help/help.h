/* The texts of `vpool help`, for the terminal, the manual pages and shell completion. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A topic. Its text is paragraphs with empty lines between; lines that begin with two spaces stay as they
 * are. */
struct vp_help_topic {
    const char *name, *title, *text;
};
extern const struct vp_help_topic vp_help_topics[];
extern const size_t vp_help_topic_count;

/* The help text of a subcommand, as its --help prints it; to be freed. NULL: no memory. */
char *vp_help_of_command(size_t number);

/* The manual pages, in mdoc. */
void vp_man_vpool(void);
void vp_man_libvpool(void);
/* What bash, zsh or fish needs to complete words. False: the shell is none of these. */
bool vp_completion(const char *shell);
