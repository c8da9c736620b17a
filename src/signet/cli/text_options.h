// What the verbs that read text share: which documents, and how they lie in their files.
#pragma once

#include "signet/cli/options.h"
#include "signet/text/document_source.h"

namespace signet::cli {

// --format, --field, --separator, --max-document
void add_source_options(Options& options, text::SourceOptions& source);
// Throws kUsage for what none of them takes. \n and \t in a separator are a line's end and a tab.
void check_source_options(text::SourceOptions& source);

}  // namespace signet::cli
