#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tenfold/tensordict.hpp>
#include <tenfold/value.hpp>

#include "core/tree/key_index.hpp"
#include "core/tree/leaf_source.hpp"
#include "formats/safetensors/header.hpp"

namespace tenfold::detail::formats::safetensors {

// Members of `__metadata__` that tenfold or other tools write.

/// The structure document, in which tensordict describes a tree (StructureLevel in tree.cpp).
inline constexpr std::string_view kStructureMember = "tensordict";
/// The notes document (core/notes/notes.hpp).
inline constexpr std::string_view kNotesMember = "tenfold";
/// The checksums of the header and the tensors (formats/shared/json_checksums.hpp).
inline constexpr std::string_view kChecksumsMember = "tenfold_xxh3";
/// Files that several processes wrote have this member instead of "tenfold_xxh3"
/// (formats/shared/boxes.hpp).
inline constexpr std::string_view kBoxesMember = "tenfold_boxes";
/// The order of the keys of a dict of tensors that is stored without a structure document. Without
/// this member, the keys are the names of the tensors in the order of the header (for shards: of
/// the weight map), then the names of the aliases in byte order. If the dict has another order,
/// this member has, for each key of the dict, its position in that list of names: "2 0 1".
inline constexpr std::string_view kOrderMember = "tenfold_order";
inline constexpr std::string_view kFormatMember = "format";
inline constexpr std::string_view kTotalSizeMember = "total_size";

/// True for the members above. Only other members can be names of aliases.
bool is_reserved_member(std::string_view key) noexcept;

using Metadata = std::map<std::string, std::string, std::less<>>;

/// All tensors of one file, or of all the shards of an index.
struct TensorEntries {
  /// A file with tensors.
  struct File {
    std::shared_ptr<const Header> header;
    std::shared_ptr<LeafSource> source;  ///< positions are indices of the header's entries
  };
  /// A tensor.
  struct Row {
    std::uint32_t file = 0;   ///< index in `files`
    std::uint32_t entry = 0;  ///< index in the entries of the file's header
  };
  std::vector<File> files;
  std::vector<Row> rows;
  KeyIndex index;  ///< index of `rows` by name

  const Header& header(std::size_t row) const { return *files[rows[row].file].header; }
  std::string_view name(std::size_t row) const { return header(row).name(rows[row].entry); }
  /// Returns the index of the row with that name, or KeyIndex::kNone.
  std::uint32_t find(std::string_view name) const;
  Leaf leaf(std::size_t row) const;
};

/// A small file may describe a large tree: a lazy stack of n entries that is stored as stacked
/// tensors becomes n nodes, each with a copy of the metadata. So the entries of all such lazy
/// stacks, and the entries of their nodes, are counted; each KiB of copied metadata counts as one
/// entry more. This is the maximum of the count.
inline constexpr std::uint64_t kMaxStackItems = std::uint64_t{1} << 20;

/// Returns what the metadata of a node of a lazy stack adds to the count of kMaxStackItems.
/// `path_bytes` is the size of the node's dotted path; `rank` is the number of its batch
/// dimensions, including the dimension of the stack.
std::uint64_t extra_stack_items(std::uint64_t path_bytes, std::size_t rank, const DimNames& names,
                                std::string_view class_name, std::string_view device) noexcept;
/// Returns what an entry of a node of a lazy stack adds to the count of kMaxStackItems. For a
/// tensor, `rank` is the number of its dimensions, including the dimension of the stack; otherwise,
/// it is 0. For a value, `value` is not null.
std::uint64_t stack_items(std::string_view key, std::size_t rank, const Value* value) noexcept;
/// Returns the size of the dotted path of the entry `key` of a node whose dotted path has
/// `path_bytes` bytes.
constexpr std::uint64_t child_path_bytes(std::uint64_t path_bytes, std::string_view key) noexcept {
  return path_bytes + (path_bytes == 0 ? 0 : 1) + key.size();
}

/// Builds the tree that the structure document (kStructureMember) in `metadata` describes, or a
/// dict of the tensors if there is none. `where` names the file. Throws Error(corrupt) if the
/// document or the notes are invalid, or if the document does not match the tensors. Throws
/// Error(unsupported) for an unknown version of the document, a newer version of the notes, or too
/// many entries of lazy stacks.
TensorDict build_tree(TensorEntries tensors, const Metadata& metadata, const std::string& where);

/// A tree converted for writing.
struct Plan {
  /// A tensor to be written.
  struct Tensor {
    std::string name;
    Leaf leaf;
  };
  std::vector<Tensor> tensors;  ///< without aliases, in the order of the tree
  Metadata metadata;            ///< "format", structure, notes, order, aliases, the user's metadata
  bool flat = false;            ///< a flat dict, stored without a structure document
  std::vector<std::string> keys;  ///< if `flat`, all keys in the order of the tree
};

/// Converts a tree. Throws Error(unsupported), naming the key, for an entry that safetensors cannot
/// store, and for a key that is not UTF-8. Throws Error(invalid_argument) for other strings that
/// are not UTF-8, and for metadata of the user that would be misread or whose key tenfold uses.
/// With `notes`, also throws like collect_notes(). Without `notes`, omits the member kNotesMember.
Plan make_plan(const TensorDict& tree, bool notes);

/// Returns the indices of `tensors` in the order in which the Rust library safetensors writes them:
/// by order_of_dtype(), then by name.
std::vector<std::size_t> reference_order(const std::vector<Plan::Tensor>& tensors);

/// Adds kOrderMember to the metadata of a flat tree whose tensors are stored in the order of
/// `stored_names`, unless a reader gets the keys in the order of `plan.keys` without it.
void add_order(Plan& plan, const std::vector<std::string_view>& stored_names);

}  // namespace tenfold::detail::formats::safetensors
