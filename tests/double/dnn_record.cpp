/* SPDX-License-Identifier: Apache-2.0 */
/* Writes operation graphs to CTD_PLANS, for plans.c to rebuild with the real library:
 *     graph
 *     desc INDEX TYPE                      children before parents, the graph itself last
 *     attr NUMBER TYPE COUNT BYTES         in hex; indices @I where TYPE is BACKEND_DESCRIPTOR
 *     end
 * Handles are left out. */
#include "dnn.h"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <set>
#include <sys/file.h>
#include <unistd.h>

namespace ctd
{
static size_t write_desc(const DescPtr &d, std::map<const Desc *, size_t> &done, std::string &text)
{
    auto known = done.find(d.get());
    if (known != done.end())
        return known->second;
    std::string own;
    for (const auto &a : d->attributes) {
        const Attribute &at = a.second;
        char b[80];
        if (at.type == CUDNN_TYPE_HANDLE)
            continue;
        snprintf(b, sizeof b, "attr %d %d %ld", a.first, (int)at.type, (long)at.count);
        own += b;
        for (const DescPtr &c : at.children)
            own += " @" + std::to_string(write_desc(c, done, text));
        if (at.children.empty())
            own += " ";
        for (unsigned char byte : at.bytes) {
            snprintf(b, sizeof b, "%02x", byte);
            own += b;
        }
        own += "\n";
    }
    size_t index = done.size();
    done[d.get()] = index;
    text += "desc " + std::to_string(index) + " " + std::to_string((int)d->type) + "\n" + own;
    return index;
}

void record_graph(const DescPtr &graph)
{
    static std::set<std::string> &written = *new std::set<std::string>;
    std::map<const Desc *, size_t> done;
    std::string text = "graph\n";
    write_desc(graph, done, text);
    text += "end\n";
    if (!written.insert(text).second)
        return;
    int fd = open(config.plans, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX) ||
        write(fd, text.data(), text.size()) != (ssize_t)text.size()) {
        fprintf(stderr, "ctd: can't write CTD_PLANS=%s\n", config.plans);
        _exit(70);
    }
    close(fd);
}
} // namespace ctd
