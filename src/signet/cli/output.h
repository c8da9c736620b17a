// Files that verbs write where the user says (-o, --svg, --report): the one place that decides what may be
// replaced. What a verb wrote itself is replaced without a question, because it can be made again. Anything
// else, such as the configuration of a run or a page that somebody wrote by hand, only with --force.
#pragma once

#include <string>
#include <string_view>

namespace signet::cli {

// kKept: networks, automata, tokenizers and documents, which somebody may have no other copy of.
enum class FileKind { kPage, kPicture, kNumbers, kLatex, kPdf, kGraphviz, kCertificate, kTrace, kKept };

// Throws kBadInput when something at `path` is in the way, or the folder that it is to lie in is missing or
// cannot be written, and kUsage when this was called for that file before: no two outputs of a command are
// one file. To be called before the work whose result goes there. `again`: it may be called twice with this.
void check_output(const std::string& path, FileKind kind, bool force, bool again = false);
// The first of these alone, where the folder is yet to be made. A missing or empty file, a device and a pipe
// are free, but no link to a device.
void check_replaceable(const std::string& path, FileKind kind, bool force);

// Whether a file is there and is `content`.
bool holds(const std::string& path, std::string_view content);

// Checks again, then writes atomically. `content` must be of the kind. A file that holds it already stays.
void write_output(const std::string& path, FileKind kind, bool force, std::string_view content);

}  // namespace signet::cli
