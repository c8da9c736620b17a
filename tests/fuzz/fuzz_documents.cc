// Documents out of JSONL.
#include "fuzz/fuzz.h"
#include "signet/text/document_source.h"

SIGNET_FUZZ(text) {
  signet::text::DocumentSource source({signet::fuzz::file_with(text, "input.jsonl")}, {});
  signet::text::Record record;
  while (source.next(record)) source.document(record);
}
