/* The scripts of a page of `vpool report`, for programs that run them without a browser.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
"use strict";
const fs = require("fs");

/* The data elements of the page by their ids, and the text of the scripts that declare these classes. */
exports.load = (path, classes) => {
    const page = fs.readFileSync(path, "utf8"), elements = {};
    for (const [, id, text] of page.matchAll(/<script type="[^"]*" id="([^"]*)">([^<]*)<\/script>/g))
        elements[id] = { textContent: text };
    const scripts = [...page.matchAll(/<script>\n([^]*?)<\/script>/g)].map(match => match[1]);
    return { elements, code: classes.map(name => scripts.find(script => script.includes(`class ${name}`))).join("\n") };
};
