/* The files that make the page of `vpool report`, as scripts/embed puts them into the program. */
/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

extern const char vp_embedded_page_html[];
extern const char vp_embedded_page_css[];
extern const char vp_embedded_data_js[];
extern const char vp_embedded_records_js[];
extern const char vp_embedded_stacks_js[];
extern const char vp_embedded_charts_js[];
extern const char vp_embedded_map_js[];
extern const char vp_embedded_flame_js[];
extern const char vp_embedded_who_js[];
extern const char vp_embedded_dump_js[];
extern const char vp_embedded_page_js[];
extern const char vp_embedded_input_js[];
extern const char vp_embedded_start_js[];
