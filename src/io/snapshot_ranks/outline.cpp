#include "io/snapshot_ranks/outline.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "core/value/value_json.hpp"
#include "formats/snapshot/manifest.hpp"
#include "io/snapshot_ranks/message.hpp"

namespace tenfold::detail::snapshot_ranks {

using namespace formats::snapshot;

namespace {

constexpr std::string_view kOutline = "outline of a snapshot";
/// Approximate size of a file of torch.save without its tensors.
constexpr std::uint64_t kObjectBytes = 1024;

std::string range_text(const TensorEntry& entry) {
  if (!entry.byte_range) return entry.location;
  return entry.location + " " + std::to_string(entry.byte_range->first);
}

/// Quotes a string. Cuts a long one and adds its digest, so that different strings stay different.
std::string quote_all(const std::string& text) {
  constexpr std::size_t kUncutBytes = 200;
  std::string quoted = base::quote(text, kUncutBytes);
  if (text.size() <= kUncutBytes) return quoted;
  return quoted + " of digest " + base::hex16(base::xxh3(std::as_bytes(std::span(text))));
}

/// Makes the outline of a rank from its plan, which includes entries that other ranks may write.
class Outliner {
 public:
  Outliner(const Plan& plan, const TensorDict& tree, const PlannedRank& rank) {
    for (const DataFile& file : plan.files) files_.emplace(file.location, &file);
    outline_.rank = rank.rank;
    outline_.world_size = rank.world_size;
    std::uint64_t shared_bytes = 0;
    for (const auto& [path, entry] : plan.manifest.entries) {
      if (is_container(entry.type) || is_sharded(entry.type) || !entry.tensor.replicated) continue;
      Candidate candidate = candidate_of(path.substr(path.find('/') + 1), entry);
      if (groups_.insert(candidate.group).second) {
        for (const std::uint64_t size : candidate.sizes) shared_bytes += size;
      }
      outline_.replicated.push_back(std::move(candidate));
    }
    for (const SnapshotShards& shards : rank.shards) {
      outline_.sharded.push_back(sharded(tree, shards));
      for (const Box& box : outline_.sharded.back().boxes) {
        shared_bytes += outline_.sharded.back().bytes_of(box);
      }
    }
    outline_.own_bytes = plan.num_bytes - std::min(plan.num_bytes, shared_bytes);
  }

  Outline take() { return std::move(outline_); }

 private:
  Candidate candidate_of(std::string path, const Entry& entry) const {
    Candidate made{std::move(path), {}, {}, {}};
    switch (entry.type) {
      case EntryType::tensor:
      case EntryType::chunked_tensor:
        made.description = entry.tensor.dtype + " " + base::list_text(entry.tensor.shape);
        made.group = made.path;
        if (entry.type == EntryType::tensor) {
          made.group = range_text(entry.tensor);
        } else if (!entry.pieces.empty()) {
          made.group = range_text(entry.pieces.front().tensor);
        }
        for (const Piece& piece : entry.pieces) made.sizes.push_back(bytes_of(piece.tensor));
        if (made.sizes.empty()) made.sizes.push_back(bytes_of(entry.tensor));
        break;
      case EntryType::object: {
        const DataFile& file = *files_.at(entry.tensor.location);
        // The first record is the pickle, which contains everything except the bytes of tensors.
        made.description =
            entry.obj_type + " of digest " +
            base::hex16(base::xxh3(std::as_bytes(std::span(file.object.front().head))));
        made.group = entry.tensor.location;
        made.sizes.push_back(kObjectBytes + leaf_bytes(file));
        break;
      }
      default:
        made.description = std::string(primitive_name(entry.type)) + " " +
                           (entry.readable.empty() ? quote_all(entry.value) : entry.readable);
        made.group = made.path;
        made.sizes.push_back(0);
    }
    return made;
  }

  std::uint64_t bytes_of(const TensorEntry& entry) const {
    if (entry.serializer == "torch_save") return leaf_bytes(*files_.at(entry.location));
    return nbytes_of(*dtype_from_name(std::string_view(entry.dtype).substr(6)), entry.shape);
  }

  static std::uint64_t leaf_bytes(const DataFile& file) {
    std::uint64_t total = 0;
    for (const auto& record : file.object) {
      if (record.leaf) total += record.leaf->nbytes();
    }
    return total;
  }

  static ShardedCandidate sharded(const TensorDict& tree, const SnapshotShards& shards) {
    ShardedCandidate made{path_of(shards.key), {}, shards.dtype, shards.shape, {}};
    made.description = std::string(shards.is_dtensor ? "a DTensor of " : "a ShardedTensor of ") +
                       to_string(shards.dtype) + " " + base::list_text(shards.shape);
    if (shards.is_dtensor) {
      made.description += " over a mesh of " + base::list_text(shards.mesh_shape) + ": " +
                          base::list_text(shards.mesh) + ", cut along";
      for (const auto& dims : shards.dim_map) made.description += " " + base::list_text(dims);
    }
    std::size_t number = 0;
    std::get<TensorDict>(tree.get(shards.key))
        .for_each([&](const std::string&, const TensorDict::Item& part) {
          const Leaf& leaf = std::get<Leaf>(part);
          const Shape& offsets = shards.offsets[number++];
          if (leaf.nbytes() != 0) made.boxes.push_back({offsets, leaf.shape()});
        });
    return made;
  }

  std::unordered_map<std::string, const DataFile*> files_;
  std::set<std::string> groups_;
  Outline outline_;
};

}  // namespace

std::string Outline::to_text() const {
  Value::Object made = message(kOutline);
  made.members.emplace_back("rank", rank);
  made.members.emplace_back("world_size", world_size);
  made.members.emplace_back("own_bytes", static_cast<std::int64_t>(own_bytes));
  Value::List entries;
  for (const Candidate& entry : replicated) {
    entries.items.push_back(
        tuple_of({entry.path, entry.description, entry.group, list_of(entry.sizes)}));
  }
  made.members.emplace_back("replicated", std::move(entries));
  Value::List tensors;
  for (const ShardedCandidate& tensor : sharded) {
    Value::List boxes;
    for (const Box& box : tensor.boxes) {
      boxes.items.push_back(tuple_of({list_of(box.offsets), list_of(box.sizes)}));
    }
    tensors.items.push_back(
        tuple_of({tensor.path, tensor.description, Value(to_string(tensor.dtype)),
                  list_of(tensor.shape), std::move(boxes)}));
  }
  made.members.emplace_back("sharded", std::move(tensors));
  return to_json(Value(std::move(made)));
}

Outline Outline::parse(std::string_view text) {
  return read_message(kOutline, text, [](const ValueReader& reader) {
    Outline made;
    made.rank = reader.at("rank").integer();
    made.world_size = reader.at("world_size").integer();
    made.own_bytes = reader.at("own_bytes").count();
    for (const ValueReader& item : reader.at("replicated").items()) {
      const auto fields = item.items(4);
      Candidate entry{fields[0].text(), fields[1].text(), fields[2].text(), {}};
      for (const std::int64_t size : fields[3].lengths()) {
        entry.sizes.push_back(static_cast<std::uint64_t>(size));
      }
      made.replicated.push_back(std::move(entry));
    }
    for (const ValueReader& item : reader.at("sharded").items()) {
      const auto fields = item.items(5);
      ShardedCandidate tensor{
          fields[0].text(), fields[1].text(), fields[2].dtype(), fields[3].lengths(), {}};
      for (const ValueReader& box : fields[4].items()) {
        const auto ends = box.items(2);
        tensor.boxes.push_back({ends[0].lengths(), ends[1].lengths()});
      }
      made.sharded.push_back(std::move(tensor));
    }
    return made;
  });
}

Outline outline_of(const Plan& plan, const TensorDict& tree, const PlannedRank& rank) {
  return Outliner(plan, tree, rank).take();
}

}  // namespace tenfold::detail::snapshot_ranks
