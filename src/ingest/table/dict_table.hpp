#pragma once

#include <string>

#include <tenfold/mapped_dict.hpp>

#include "ingest/table/table_writer.hpp"

namespace tenfold {

/// Turns a complete table into a dictionary: adds an index for lookups by the column "key".
/// `where`: the text at the start of messages. Throws Error(invalid_argument) if the column "key"
/// is missing or cannot be a key. If `duplicates` is `error`, also throws for a duplicate key,
/// which the message names.
void add_dict_index(TableWriter& table, const std::string& where, DictValueForm form,
                    DuplicateKeys duplicates, Monitor* monitor);

}  // namespace tenfold
