#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <tenfold/batch_loader.hpp>
#include <tenfold/dataset.hpp>
#include <tenfold/io.hpp>
#include <tenfold/parts.hpp>

#include "dataset/growing_of.hpp"
#include "support/files.hpp"
#include "support/temporary_folder.hpp"

namespace tenfold::test {

/// Returns rows [begin, end) with columns of all kinds but bytes: id int64, x nullable float32 [2],
/// name string, tokens ragged int32, tags lists of strings.
inline TensorDict rows_of_all_kinds(std::int64_t begin, std::int64_t end) {
  NodeInfo info;
  info.batch_size = {end - begin};
  info.schema = from_json(
      R"({"columns": {"id": {"dtype": "int64"},
                      "x": {"dtype": "float32", "shape": [2], "nullable": true},
                      "name": {"dtype": "string"},
                      "tokens": {"dtype": "int32", "ragged": true},
                      "tags": {"dtype": "string", "ragged": true}}})",
      "test");
  std::vector<std::int64_t> ids;
  std::vector<float> x;
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> name_ends;
  std::vector<std::int64_t> token_ends;
  std::vector<std::int64_t> tag_ends;
  std::vector<std::int64_t> item_ends;
  std::string names;
  std::string tags;
  Tensor valid = Tensor::zeros(DType::bool_, {end - begin});
  for (std::int64_t i = begin; i < end; ++i) {
    ids.push_back(i);
    const bool is_there = i % 3 != 0;
    const float missing = std::numeric_limits<float>::quiet_NaN();
    x.insert(x.end(), 2, is_there ? static_cast<float>(i) : missing);
    valid.mutable_raw_data()[i - begin] = std::byte{is_there};
    names += "row " + std::to_string(i);
    name_ends.push_back(static_cast<std::int64_t>(names.size()));
    for (std::int64_t k = 0; k < i % 4; ++k)
      tokens.push_back(static_cast<std::int32_t>(i * 10 + k));
    token_ends.push_back(static_cast<std::int64_t>(tokens.size()));
    for (std::int64_t k = 0; k < i % 3; ++k) {
      tags += std::string(static_cast<std::size_t>(k), 't') + std::to_string(i);
      item_ends.push_back(static_cast<std::int64_t>(tags.size()));
    }
    tag_ends.push_back(static_cast<std::int64_t>(item_ends.size()));
  }
  TensorDict tree(info);
  tree.set("id", ints(ids));
  tree.set("x", Tensor::from(std::span<const float>(x), {end - begin, 2}));
  tree.set("x.valid", valid);
  tree.set("name", TensorDict::Item(unbatched(bytes_tensor(names))));
  tree.set("name.end", ints(name_ends));
  tree.set("tokens",
           TensorDict::Item(unbatched(Tensor::from(std::span<const std::int32_t>(tokens)))));
  tree.set("tokens.end", ints(token_ends));
  tree.set("tags", TensorDict::Item(unbatched(bytes_tensor(tags))));
  tree.set("tags.item_end", TensorDict::Item(unbatched(ints(item_ends))));
  tree.set("tags.end", ints(tag_ends));
  return tree;
}

/// Creates a data set of parts at `path`. `sizes` are the numbers of rows of its parts.
inline Dataset make_parts(const Path& path, const std::vector<std::int64_t>& sizes) {
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    save(rows_of_all_kinds(begin, begin + sizes[i]),
         path / part_name(static_cast<std::int64_t>(i), static_cast<std::int64_t>(sizes.size())),
         {.durable = false});
    begin += sizes[i];
  }
  return commit_parts(path, {.durable = false});
}

inline bool is_same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.nbytes() == 0 ||
          std::memcmp(a.raw_data(), b.raw_data(), static_cast<std::size_t>(a.nbytes())) == 0);
}

/// Expects that every byte of both batches is the same.
inline void expect_same(const Batch& a, const Batch& b) {
  ASSERT_EQ(a.num_rows(), b.num_rows());
  ASSERT_EQ(a.columns().size(), b.columns().size());
  for (std::size_t i = 0; i < a.columns().size(); ++i) {
    const BatchColumn& one = a.columns()[i];
    const BatchColumn& two = b.columns()[i];
    const std::string name = one.column.name();
    EXPECT_EQ(name, two.column.name());
    EXPECT_TRUE(is_same(one.values, two.values)) << name;
    EXPECT_TRUE(is_same(one.offsets, two.offsets)) << name;
    EXPECT_TRUE(is_same(one.item_offsets, two.item_offsets)) << name;
    EXPECT_TRUE(is_same(one.lengths, two.lengths)) << name;
    EXPECT_TRUE(is_same(one.valid, two.valid)) << name;
  }
}

}  // namespace tenfold::test
