#include "io/flat_safetensors.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/node.hpp"
#include "core/tree/outline_leaf.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/storable.hpp"

namespace tenfold {

using namespace detail;
namespace {

FlatSafetensors::Entry entry_of(const formats::safetensors::Header& header, std::size_t i) {
  const DType dtype = header.entries[i].dtype;
  const std::span<const std::int64_t> shape = header.shape(i);
  FlatSafetensors::Entry entry{std::string(header.name(i)),
                               std::string(*formats::safetensors::name_of_dtype(dtype)),
                               Shape(shape.begin(), shape.end())};
  if (dtype == DType::float4_e2m1fn_x2 && !entry.shape.empty()) entry.shape.back() *= 2;
  return entry;
}

/// `make_leaf(i)` creates the leaf of entry i of the header.
template <class MakeLeaf>
FlatSafetensors flat_of(const formats::safetensors::Header& header, std::string where,
                        const MakeLeaf& make_leaf) {
  FlatSafetensors flat;
  auto node = std::make_shared<Node>();
  node->where = std::move(where);
  node->info.kind = NodeKind::dict;
  node->entries.reserve(header.entries.size());
  for (const std::uint32_t i : header.file_order()) {
    flat.entries.push_back(entry_of(header, i));
    node->entries.push_back({flat.entries.back().name, make_leaf(i)});
  }
  flat.tree = tensordict_of(std::move(node));
  flat.metadata = header.metadata;
  flat.metadata.erase(std::string(formats::safetensors::kChecksumsMember));
  flat.metadata.erase(std::string(formats::safetensors::kBoxesMember));
  return flat;
}

Error refuse(const std::string& where, std::string_view key) {
  return base::unsupported(where).part("key ", base::quote(key));
}

std::vector<formats::safetensors::Plan::Tensor> tensors_of(const TensorDict& tree,
                                                           const std::string& where) {
  std::vector<formats::safetensors::Plan::Tensor> tensors;
  for (const Node::Entry& entry : node_of(tree)->entries) {
    const TensorDict::Item item = tree.get(entry.key);
    const Leaf* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) {
      throw refuse(where, entry.key)
          .problem("a flat safetensors file holds tensors only")
          .expected("a tensor");
    }
    if (leaf->is_nested() || !formats::safetensors::name_of_dtype(leaf->dtype())) {
      throw refuse(where, entry.key)
          .problem("safetensors cannot store it")
          .expected("a dense tensor of a dtype that safetensors has")
          .found(leaf->is_nested() ? "a nested tensor" : to_string(leaf->dtype()));
    }
    formats::require_utf8(entry.key, [&] { return refuse(where, entry.key); });
    if (entry.key == "__metadata__") {
      throw refuse(where, entry.key)
          .problem("the name is reserved by the format")
          .expected("another name");
    }
    tensors.push_back({entry.key, *leaf});
  }
  return tensors;
}

std::vector<const formats::safetensors::Plan::Tensor*> ordered(
    const std::vector<formats::safetensors::Plan::Tensor>& tensors) {
  std::vector<const formats::safetensors::Plan::Tensor*> order;
  order.reserve(tensors.size());
  for (const std::size_t i : formats::safetensors::reference_order(tensors))
    order.push_back(&tensors[i]);
  return order;
}

/// Returns the user's metadata without checksums, which are those of another file. Throws if the
/// metadata describes a tree of other tensors (keys "tensordict" and "tenfold"): readers would
/// apply this description and refuse the file.
FlatMetadata checked_metadata(const std::vector<const formats::safetensors::Plan::Tensor*>& order,
                              FlatMetadata metadata, const std::string& where) {
  using namespace formats::safetensors;
  metadata.erase(std::string(kChecksumsMember));
  metadata.erase(std::string(kBoxesMember));
  for (const auto& [key, value] : metadata) {
    if (base::is_utf8(key) && base::is_utf8(value)) continue;
    throw base::invalid_argument()
        .part("metadata: key ", base::quote(key))
        .expected("a string in UTF-8")
        .found("other bytes");
  }
  if (!metadata.contains(kStructureMember) && !metadata.contains(kNotesMember)) return metadata;
  const std::string text = header_of(order, metadata);
  std::uint64_t total_bytes = 0;
  for (const auto* tensor : order) total_bytes += tensor->leaf.nbytes();
  try {
    auto header = std::make_shared<Header>(
        parse_header(std::string_view(text).substr(8), total_bytes, where));
    TensorEntries tensors;
    tensors.files.push_back({header, outline_source()});
    for (std::uint32_t i = 0; i < header->entries.size(); ++i) tensors.rows.push_back({0, i});
    tensors.index = std::move(header->index);
    build_tree(std::move(tensors), header->metadata, where);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw;
    throw base::invalid_argument()
        .part("metadata")
        .problem("tenfold describes the tree under the keys \"tensordict\" and \"tenfold\"")
        .expected("a description of these tensors")
        .found(error.what())
        .remedy("use another key");
  }
  return metadata;
}

}  // namespace

FlatSafetensors open_flat_safetensors(const Path& path) {
  const formats::safetensors::OpenedFile opened =
      formats::safetensors::open_file(os::File::open_read(path));
  const formats::safetensors::Header& header = *opened.header;
  return flat_of(header, opened.source->file().display(), [&](std::uint32_t i) {
    const std::span<const std::int64_t> shape = header.shape(i);
    return stored_leaf(header.entries[i].dtype, Shape(shape.begin(), shape.end()), opened.source,
                       i);
  });
}

FlatSafetensors read_flat_safetensors(std::span<const std::byte> bytes, std::string_view where) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8 && i < bytes.size(); ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (bytes.size() < 8 || length > bytes.size() - 8 ||
      length > formats::safetensors::kMaxHeaderBytes) {
    throw base::corrupt(where)
        .part("header")
        .problem("not a safetensors file")
        .expected("the length of the header in 8 bytes, and then the header")
        .found(bytes.size(), " bytes");
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const std::span<const std::byte> data = bytes.subspan(8 + length);
  const formats::safetensors::Header header =
      formats::safetensors::parse_header(text, data.size(), where);
  return flat_of(header, std::string(where), [&](std::uint32_t i) {
    const formats::safetensors::Header::Entry& entry = header.entries[i];
    const std::span<const std::int64_t> shape = header.shape(i);
    Buffer buffer = Buffer::allocate(entry.end - entry.begin);
    std::ranges::copy(data.subspan(entry.begin, entry.end - entry.begin), buffer.mutable_data());
    return Leaf(Tensor(entry.dtype, Shape(shape.begin(), shape.end()), std::move(buffer)));
  });
}

void save_flat_safetensors(const TensorDict& tree, const FlatMetadata& metadata, const Path& path,
                           const SaveOptions& options) {
  const std::vector<formats::safetensors::Plan::Tensor> tensors = tensors_of(tree, path.string());
  const std::vector<const formats::safetensors::Plan::Tensor*> order = ordered(tensors);
  const FlatMetadata members = checked_metadata(order, metadata, path.string());
  formats::refuse_existing(path, options.overwrite);
  const formats::WriteRequest request{.durable = options.durable,
                                      .checksums = options.checksums,
                                      .num_threads = options.num_threads,
                                      .monitor = options.monitor};
  std::uint64_t total_bytes = 0;
  for (const auto* tensor : order) total_bytes += tensor->leaf.nbytes();
  formats::Progress progress(options.monitor, total_bytes, path.filename().string());
  formats::FileReplacement replacement(path, total_bytes);
  formats::safetensors::write_file(replacement.file(), order, members, request, progress);
  replacement.publish(options.durable);
  progress.finish();
}

std::vector<std::byte> flat_safetensors_bytes(const TensorDict& tree,
                                              const FlatMetadata& metadata) {
  const std::vector<formats::safetensors::Plan::Tensor> tensors = tensors_of(tree, "");
  const std::vector<const formats::safetensors::Plan::Tensor*> order = ordered(tensors);
  const std::string header =
      formats::safetensors::header_of(order, checked_metadata(order, metadata, ""));
  std::uint64_t total_bytes = header.size();
  for (const auto* tensor : order) total_bytes += tensor->leaf.nbytes();
  std::vector<std::byte> bytes(total_bytes);
  std::ranges::copy(std::as_bytes(std::span(header)), bytes.begin());
  std::span<std::byte> rest = std::span(bytes).subspan(header.size());
  for (const auto* tensor : order) {
    const std::uint64_t size_bytes = tensor->leaf.nbytes();
    tensor->leaf.read(0, rest.first(size_bytes));
    rest = rest.subspan(size_bytes);
  }
  return bytes;
}

}  // namespace tenfold
