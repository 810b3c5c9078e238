#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <tenfold/dataset.hpp>
#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/leaf_source.hpp"
#include "dataset/leaf_names.hpp"
#include "formats/folder/append/commit_file.hpp"
#include "formats/folder/inventory.hpp"
#include "formats/folder/meta/meta.hpp"
#include "formats/folder/plan.hpp"
#include "formats/folder/writer.hpp"
#include "formats/shared/commit.hpp"
#include "os/fs/file.hpp"

namespace tenfold {

using namespace detail;
namespace {

/// The source of leaves of zeros. The leaves use no memory in create(): with WriteRequest::zeros,
/// the writer extends the files and does not read the leaves.
class Zeros final : public LeafSource {
 public:
  Buffer map(const Leaf& leaf) override {
    return Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
  }
  void read(const Leaf&, std::uint64_t, std::span<std::byte> into) override {
    std::fill(into.begin(), into.end(), std::byte{0});
  }
  base::Where where(const Leaf&) const override { return {"", "zeros"}; }
};

Leaf rows_of_zeros(DType dtype, const Shape& inner, std::int64_t num_rows,
                   const std::shared_ptr<Zeros>& zeros) {
  Shape shape = inner;
  shape.insert(shape.begin(), num_rows);
  static_cast<void>(nbytes_of(dtype, shape));  // throws if the tensor is too large
  return stored_leaf(dtype, std::move(shape), zeros, 0);
}

TensorDict tree_of(const Schema& schema, std::int64_t num_rows) {
  NodeInfo info;
  info.batch_size = {num_rows};
  info.schema = schema.to_value();
  TensorDict tree(info);
  const auto zeros = std::make_shared<Zeros>();
  const auto add = [&](const KeyPath& key, DType dtype, const Shape& inner, bool unbatched) {
    Leaf leaf = rows_of_zeros(dtype, inner, unbatched ? 0 : num_rows, zeros);
    leaf.mark_unbatched(unbatched);
    tree.set(key[0], TensorDict::Item(std::move(leaf)));
  };
  for (const Column& column : schema.columns()) {
    add(column.leaf, column.dtype, column.shape, column.has_ends());
    if (column.has_ends()) add(column.end_leaf, DType::int64, {}, false);
    if (!column.item_end_leaf.empty()) add(column.item_end_leaf, DType::int64, {}, true);
    if (column.nullable) add(column.valid_leaf, DType::bool_, {}, false);
  }
  return tree;
}

Schema stored_schema(const Path& path, const Schema& schema) {
  if (schema.size() == 0) {
    throw base::invalid_argument(path).part("schema").expected("at least one column").found("none");
  }
  std::vector<Column> columns = schema.columns();
  refuse_ambiguous_names(columns, path);
  name_leaves(columns);
  return Schema(std::move(columns));
}

[[noreturn]] void fail_existing(const Path& path) {
  throw Error::io(EEXIST, path.string())
      .expected("nothing there")
      .found("a file or folder")
      .remedy("open it with mode \"r+\" to add rows, or remove it");
}

void check(const Path& path, const Schema& schema, const CreateOptions& options) {
  const auto at_least_0 = [&](const char* name, std::int64_t value) {
    if (value < 0) {
      throw base::invalid_argument(path).part(name).expected("0 or more").found(value);
    }
  };
  at_least_0("num_rows", options.num_rows);
  at_least_0("capacity", options.capacity);
  if (options.num_rows > 0 && options.capacity > 0) {
    throw base::invalid_argument(path)
        .part("num_rows and capacity")
        .expected("one of them")
        .found("both")
        .remedy("a circular buffer begins empty");
  }
  for (const Column& column : schema.columns()) {
    if (!column.ragged || nbytes_of(column.dtype, column.shape) > 0) continue;
    throw base::unsupported(path.string())
        .part("column ", base::quote(column.name()))
        .problem("elements of 0 bytes cannot be counted")
        .expected("at least 1 byte");
  }
  if (options.capacity > 0) {
    for (const Column& column : schema.columns()) {
      if (!column.has_ends()) continue;
      throw base::unsupported(path.string())
          .part("column ", base::quote(column.name()))
          .problem("all slots of a circular buffer have the same size")
          .expected("rows of equal size")
          .found(column.is_text() ? "strings or bytes" : "a ragged column");
    }
  }
  if (os::exists(path)) fail_existing(path);
}

/// Gives the files of a circular buffer their full size.
void extend_files(os::Directory& folder, const formats::folder::Plan& full) {
  for (const formats::folder::Plan::File& file : full.files) {
    if (!file.is_leaf || file.size_bytes == 0) continue;
    os::File made = os::File::create_at(folder, file.name);
    made.truncate(file.size_bytes);
    made.sync();
    made.close_written();
  }
}

}  // namespace

Dataset create(const Path& path, const Schema& schema, const CreateOptions& options) {
  check(path, schema, options);
  const Schema stored = stored_schema(path, schema);
  const formats::folder::Plan plan =
      detail::formats::folder::plan_tree(tree_of(stored, options.num_rows));
  {
    // Rows that are written in place have no checksums. Reserve disk space for the initial rows,
    // because a write to them through a mapping raises SIGBUS if the disk is full.
    const formats::WriteRequest request{.durable = true,
                                        .checksums = options.num_rows == 0 && options.capacity == 0,
                                        .zeros = true,
                                        .reserve = true};
    formats::FolderReplacement replacement(path, formats::folder::written_bytes(plan, request),
                                           formats::folder::foreign_in);
    formats::folder::write_plan(plan, replacement.folder(), request);
    if (options.capacity > 0) {
      extend_files(replacement.folder(),
                   formats::folder::plan_tree(tree_of(stored, options.capacity)));
      formats::folder::create_ring_page(replacement.folder(),
                                        static_cast<std::uint64_t>(options.capacity));
    }
    if (!replacement.publish_if_absent(true)) fail_existing(path);
  }
  return Dataset(path, Mode::write_through);
}

}  // namespace tenfold
