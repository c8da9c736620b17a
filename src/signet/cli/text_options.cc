#include "signet/cli/text_options.h"

#include "signet/base/error.h"

namespace signet::cli {

void add_source_options(Options& options, text::SourceOptions& source) {
  options.value("--format", source.format,
                "text (a file is a document), lines (a line is), jsonl, ids (nanoGPT's .bin, Megatron's .bin "
                "and .idx); auto = "
                "jsonl by name, else text");
  options.only("--format", {"auto", "text", "lines", "jsonl", "ids"});
  options.value("--field", source.field, "of a line of JSONL that holds the document");
  options.text("--separator", source.separator, "between the documents of one text file");
  options.value("--max-document", source.max_document, "bytes of the longest document that is accepted");
}

void check_source_options(text::SourceOptions& source) {
  if (source.max_document < 1 || source.max_document > int64_t{1} << 31)
    fail(ErrorCode::kUsage, "--max-document must lie between 1 and 2147483648, not {}", source.max_document);
  for (const auto& [written, meant] : {std::pair{"\\n", "\n"}, std::pair{"\\t", "\t"}})
    for (size_t at = 0; (at = source.separator.find(written, at)) != source.separator.npos; ++at)
      source.separator.replace(at, 2, meant);
}

}  // namespace signet::cli
