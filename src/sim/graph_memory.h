/* Memory of graphs: who may free it, and when. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "nodes.h"

/* Memory of a graph is the program's from the launch that allocates it until it is freed, by whatever means: meanwhile
 * its graph lives on. */
void sim_graph_memory_give(struct sim_block *block);
void sim_graph_memory_take(struct sim_block *block);
/* May this graph have a node that frees it? */
bool sim_graph_may_free(const struct sim_graph *graph, const struct sim_block *block);
/* The op that frees it: a node of a graph, or (NULL) work of a stream, from which on it is not the program's. */
struct sim_op *sim_graph_free_op(struct sim_block *block, const struct sim_graph *in);
/* What an earlier launch has allocated must be free, and what this one frees must not be, but for what it allocates. */
bool sim_graph_may_launch(const struct sim_exec *exec);
/* Those that free by themselves: what the launch before has allocated. */
void sim_graph_memory_take_unfreed(struct sim_exec *exec, struct sim_stream *stream);
/* All handles of graphs are gone. */
void sim_graph_memory_reset(void);
