#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>
#include <tenfold/ingest.hpp>

#include "support/temporary_folder.hpp"

namespace tenfold::test {

/// Writes text files, and ingests them into a data set in the same temporary folder.
class IngestOf {
 public:
  Path write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  Path target() const { return folder_ / "rows"; }

  Dataset rows(const std::string& name, const std::string& text, IngestOptions options = {}) {
    return rows({write(name, text)}, std::move(options));
  }
  Dataset rows(const std::vector<Path>& sources, IngestOptions options = {}) {
    options.durable = false;
    report = ingest(sources, target(), options);
    return Dataset(target());
  }
  /// Ingests `text`, which must fail with `code` and leave no target. Returns the error message.
  std::string error(const std::string& name, const std::string& text, ErrorCode code,
                    IngestOptions options = {}) {
    try {
      rows(name, text, std::move(options));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_FALSE(std::filesystem::exists(target()));
      std::string message = error.what();
      const std::string prefix = (folder_.path() / "").string();
      if (message.starts_with(prefix)) message.erase(0, prefix.size());
      return message;
    }
    ADD_FAILURE() << "expected an error of " << text;
    return {};
  }

  IngestReport report;

 private:
  TemporaryFolder folder_;
};

/// A column's type as text: "int64", "float64[3]?", "string[*]".
inline std::string type_of(const Dataset& ds, const std::string& name) {
  const Column* column = ds.schema().find(name);
  if (column == nullptr) return "none";
  std::string text = column->dtype_name();
  std::string lengths = column->ragged ? "*" : "";
  for (const std::int64_t length : column->shape) {
    lengths += (lengths.empty() ? "" : ", ") + std::to_string(length);
  }
  if (!lengths.empty()) text += "[" + lengths + "]";
  return text + (column->nullable ? "?" : "");
}

template <class T>
std::vector<T> values(const Dataset& ds, const std::string& name) {
  const Batch batch = ds.rows(0, ds.size());
  const auto span = batch.at(name).span<T>();
  return {span.begin(), span.end()};
}

inline std::vector<std::string> texts(const Dataset& ds, const std::string& name) {
  const Batch batch = ds.rows(0, ds.size());
  std::vector<std::string> made;
  for (std::int64_t row = 0; row < ds.size(); ++row) {
    made.emplace_back(batch.text(name, row));
  }
  return made;
}

inline std::vector<int> valid(const Dataset& ds, const std::string& name) {
  const Batch batch = ds.rows(0, ds.size());
  const std::byte* bytes = batch.column(name).valid.raw_data();
  std::vector<int> made;
  for (std::int64_t row = 0; row < ds.size(); ++row) made.push_back(static_cast<int>(bytes[row]));
  return made;
}

}  // namespace tenfold::test
