/* Memory of graphs: who may free it, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "nodes.h"

/* Graph memory belongs to the program from the launch that allocates it until it is freed, by whatever call; its graph
 * lives at least as long. */
void sim_graph_memory_give(struct sim_block *block);
void sim_graph_memory_take(struct sim_block *block);
/* May this graph have a node that frees the block? */
bool sim_graph_may_free(const struct sim_graph *graph, const struct sim_block *block);
/* Makes the op that frees the block: a node of a graph, or (NULL) work of a stream, after which it no longer belongs to
 * the program. */
struct sim_op *sim_graph_free_op(struct sim_block *block, const struct sim_graph *in);
/* May the graph be launched? What an earlier launch allocated must be free, and what this launch frees must be
 * allocated, or be allocated by it. */
bool sim_graph_may_launch(const struct sim_exec *exec);
/* Frees what the launch before has allocated, for executables that free by themselves. */
void sim_graph_memory_take_unfreed(struct sim_exec *exec, struct sim_stream *stream);
/* To be called when all handles of graphs are gone. */
void sim_graph_memory_reset(void);
