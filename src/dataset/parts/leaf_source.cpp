#include "dataset/parts/leaf_source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"

namespace tenfold {
namespace {

constexpr std::size_t kBlockEnds = 8192;
constexpr std::uint64_t kEndBytes = sizeof(std::int64_t);

using Role = LeafRole::Part;

bool counts(Role part) noexcept { return part == Role::ends || part == Role::item_ends; }

}  // namespace

PartsSource::PartsSource(std::shared_ptr<PartsFolder> folder)
    : folder_(std::move(folder)),
      schema_(folder_->schema()),
      roles_(leaf_roles(schema_)),
      elements_(roles_.size()),
      counted_in_(roles_.size(), 0) {
  const auto role_of = [&](std::size_t column, Role part) {
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i].column == column && roles_[i].part == part) return i;
    }
    return roles_.size();
  };
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    if (!counts(roles_[i].part)) continue;
    const std::size_t items = role_of(roles_[i].column, Role::item_ends);
    const bool has_items = roles_[i].part == Role::ends && items < roles_.size();
    counted_in_[i] = has_items ? items : role_of(roles_[i].column, Role::values);
  }
  count_elements();
}

/// Reads the number of elements of each part from the last end offset, because the file may have
/// more elements after a failed append.
void PartsSource::count_elements() {
  const bool any = std::ranges::any_of(roles_, &LeafRole::is_unbatched);
  if (!any) return;
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i].is_unbatched) elements_[i].push_back(0);
  }
  for (std::size_t part = 0; part < folder_->num_parts(); ++part) {
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (!counts(roles_[i].part)) continue;
      const std::size_t counted = counted_in_[i];
      const std::int64_t rows = folder_->manifest().parts[part].num_rows;
      const std::int64_t num_ends =
          roles_[i].is_unbatched ? elements_[i].back() - elements_[i][part] : rows;
      std::int64_t last = 0;
      if (num_ends > 0) {
        leaf_of(part, i).read(static_cast<std::uint64_t>(num_ends - 1) * kEndBytes,
                              std::as_writable_bytes(std::span(&last, 1)));
        const Leaf elements = leaf_of(part, counted);
        const std::int64_t limit = elements.shape()[0];
        if (last < 0 || last > limit) {
          throw base::corrupt(folder_->display_of(part))
              .part("column ", base::quote(schema_.columns()[roles_[i].column].name()), ": ends")
              .problem("the data set is damaged")
              .expected("a last end offset from 0 to ", limit)
              .found(last);
        }
      }
      if (last > std::numeric_limits<std::int64_t>::max() - elements_[counted].back()) {
        throw base::corrupt(folder_->display_of(part))
            .part("elements")
            .expected("fewer than 2^63 in all parts")
            .found("more");
      }
      elements_[counted].push_back(elements_[counted].back() + last);
    }
  }
}

Leaf PartsSource::leaf_of(std::size_t part, std::size_t role) const {
  const auto opened = folder_->tree_of(part);
  const TensorDict::Item item = opened->tree.get(opened->roles[role].key);
  return std::get<Leaf>(item);
}

const PartsSource::Starts& PartsSource::starts_of(std::size_t role) const {
  return roles_[role].is_unbatched ? elements_[role] : folder_->first_rows();
}

void PartsSource::require_countable(DType dtype, const Shape& shape) const {
  try {
    static_cast<void>(nbytes_of(dtype, shape));
  } catch (const Error& error) {
    throw Error(error)
        .code(ErrorCode::corrupt)
        .path(folder_->directory().display_of(std::string(detail::formats::kPartsName)))
        .within("rows");
  }
}

bool PartsSource::is_leaf(std::size_t position, const std::string& key, const Leaf& leaf) const {
  return position < roles_.size() && source_of(leaf).get() == this &&
         position_of(leaf) == position && key == roles_[position].key[0] &&
         leaf.is_unbatched() == roles_[position].is_unbatched;
}

bool PartsSource::is_all(std::size_t num_entries, const TensorDict& tree) const {
  return num_entries == roles_.size() && tree.batch_size() == Shape{folder_->num_rows()} &&
         tree.info().schema == schema_.to_value();
}

TensorDict PartsSource::tree() {
  NodeInfo info;
  info.batch_size = {folder_->num_rows()};
  info.schema = schema_.to_value();
  TensorDict tree(std::move(info));
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    const Column& column = schema_.columns()[roles_[i].column];
    DType dtype = column.dtype;
    Shape shape;
    if (roles_[i].part == Role::values) shape = column.shape;
    if (counts(roles_[i].part)) dtype = DType::int64;
    if (roles_[i].part == Role::valid) dtype = DType::bool_;
    shape.insert(shape.begin(), starts_of(i).back());
    require_countable(dtype, shape);
    Leaf leaf = stored_leaf(dtype, std::move(shape), shared_from_this(), i);
    leaf.mark_unbatched(roles_[i].is_unbatched);
    tree.set(roles_[i].key[0], TensorDict::Item(std::move(leaf)));
  }
  node_of(tree)->where = folder_->directory().display();
  return tree;
}

void PartsSource::read_part(std::size_t role, std::size_t part, std::uint64_t offset_bytes,
                            std::span<std::byte> into) const {
  const Leaf leaf = leaf_of(part, role);
  if (!counts(roles_[role].part)) return leaf.read(offset_bytes, into);
  const std::int64_t before = elements_[counted_in_[role]][part];
  // The requested bytes may begin or end in the middle of an 8-byte end offset.
  std::vector<std::int64_t> ends;
  const std::uint64_t end_bytes = offset_bytes + into.size();
  const std::uint64_t last = (end_bytes + kEndBytes - 1) / kEndBytes;
  for (std::uint64_t first = offset_bytes / kEndBytes; first < last; first += ends.size()) {
    ends.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBlockEnds, last - first)));
    leaf.read(first * kEndBytes, std::as_writable_bytes(std::span(ends)));
    for (std::int64_t& end : ends) {
      end = static_cast<std::int64_t>(static_cast<std::uint64_t>(end) +
                                      static_cast<std::uint64_t>(before));
    }
    const std::uint64_t from = std::max(offset_bytes, first * kEndBytes);
    const std::uint64_t to = std::min(end_bytes, (first + ends.size()) * kEndBytes);
    std::memcpy(into.data() + (from - offset_bytes),
                reinterpret_cast<const std::byte*>(ends.data()) + (from - first * kEndBytes),
                static_cast<std::size_t>(to - from));
  }
}

void PartsSource::read(const Leaf& leaf, std::uint64_t offset_bytes, std::span<std::byte> into) {
  const auto role = static_cast<std::size_t>(position_of(leaf));
  const std::uint64_t row_bytes = roles_[role].row_bytes;
  if (row_bytes == 0) return;
  const Starts& starts = starts_of(role);
  while (!into.empty()) {
    const auto element = static_cast<std::int64_t>(offset_bytes / row_bytes);
    const auto after = std::ranges::upper_bound(starts, element);
    const auto part = static_cast<std::size_t>(after - starts.begin()) - 1;
    const std::uint64_t begin_bytes = static_cast<std::uint64_t>(starts[part]) * row_bytes;
    const std::uint64_t left =
        static_cast<std::uint64_t>(starts[part + 1]) * row_bytes - offset_bytes;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), left));
    read_part(role, part, offset_bytes - begin_bytes, into.first(size));
    into = into.subspan(size);
    offset_bytes += size;
  }
}

Buffer PartsSource::map(const Leaf& leaf) {
  const std::lock_guard lock(mutex_);
  Buffer& copy = copies_[position_of(leaf)];
  if (copy.size_bytes() == 0 && leaf.nbytes() > 0) {
    // Reading a byte opens a part, and compares its columns with those in the manifest, before a
    // shape in the manifest determines the size of an allocation.
    std::byte first{};
    read(leaf, 0, {&first, 1});
    Buffer made = Buffer::allocate(static_cast<std::size_t>(leaf.nbytes()));
    read(leaf, 0, made.mutable_bytes());
    copy = std::move(made);
  }
  return copy;
}

base::Where PartsSource::where(const Leaf& leaf) const {
  const auto role = static_cast<std::size_t>(position_of(leaf));
  return {folder_->directory().display(), "tensor " + base::quote(dotted(roles_[role].key))};
}

TensorDict open_parts(os::Directory folder, const Path& path) {
  return std::make_shared<PartsSource>(PartsFolder::open(std::move(folder), path))->tree();
}

}  // namespace tenfold
