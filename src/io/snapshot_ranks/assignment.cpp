#include "io/snapshot_ranks/assignment.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/text.hpp"
#include "core/tree/assembled_source.hpp"
#include "core/tree/outline_leaf.hpp"

namespace tenfold::detail::snapshot_ranks {

using namespace formats::snapshot;

namespace {

/// Implements share_work().
class Assigner {
 public:
  Assigner(std::string where, const std::vector<Outline>& outlines)
      : where_(std::move(where)), outlines_(outlines) {
    for (const Outline& outline : outlines) loads_.push_back(outline.own_bytes);
    share_boxes();
    share_replicated();
  }

  Assignment take() { return std::move(made_); }

  /// The approximate size of all files.
  std::uint64_t num_bytes() const {
    std::uint64_t total = 0;
    for (const std::uint64_t load : loads_) total += load;
    return total;
  }

 private:
  using Holders = std::map<Box, std::vector<std::int64_t>>;

  Error refuse(const std::string& path) const {
    return base::invalid_argument(where_).part("entry ", base::quote(path));
  }
  [[noreturn]] void fail_other(const std::string& path, std::int64_t rank,
                               const std::string& expected, const std::string& found) const {
    throw refuse(path)
        .problem("it differs between ranks")
        .expected(expected, " as on rank 0")
        .found(found, " on rank ", rank);
  }

  std::int64_t least_loaded(const std::vector<std::int64_t>* among = nullptr) const {
    const auto load = [&](std::int64_t rank) { return loads_[static_cast<std::size_t>(rank)]; };
    if (among != nullptr) return *std::ranges::min_element(*among, {}, load);
    return std::ranges::min_element(loads_) - loads_.begin();
  }

  void share_boxes() {
    struct Tensor {
      const ShardedCandidate* first = nullptr;
      Holders holders;
    };
    std::map<std::string, Tensor> tensors;
    for (const Outline& outline : outlines_) {
      for (const ShardedCandidate& candidate : outline.sharded) {
        Tensor& tensor = tensors[candidate.path];
        if (tensor.first == nullptr) tensor.first = &candidate;
        if (tensor.first->description != candidate.description) {
          throw refuse(candidate.path)
              .problem("its shards do not belong together")
              .expected(tensor.first->description, " on all ranks")
              .found(candidate.description, " on rank ", outline.rank);
        }
        for (const Box& box : candidate.boxes) {
          std::vector<std::int64_t>& holders = tensor.holders[box];
          if (!holders.empty() && holders.back() == outline.rank) {
            throw refuse(candidate.path)
                .problem("it overlaps itself")
                .expected("each shard once on rank ", outline.rank)
                .found("one twice");
          }
          holders.push_back(outline.rank);
        }
      }
    }
    for (auto& [path, tensor] : tensors) {
      require_cover(path, *tensor.first, tensor.holders);
      std::vector<Assignment::SharedBox> shared;
      for (auto& [box, holders] : tensor.holders) {
        const std::int64_t rank = least_loaded(&holders);
        loads_[static_cast<std::size_t>(rank)] += tensor.first->bytes_of(box);
        if (holders.size() > 1) shared.push_back({box.offsets, box.sizes, rank});
      }
      if (!shared.empty()) made_.boxes.emplace(path, std::move(shared));
    }
  }

  /// Throws unless the boxes cover each element exactly once, as readers of shards require.
  void require_cover(const std::string& path, const ShardedCandidate& tensor,
                     const Holders& holders) const {
    std::vector<TensorPiece> pieces;
    for (const auto& [box, ranks] : holders) {
      pieces.push_back({box.offsets, outline_leaf(tensor.dtype, box.sizes)});
    }
    try {
      AssembledSource::assemble(tensor.dtype, tensor.shape, std::move(pieces),
                                where_ + ": entry " + base::quote(path));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt) throw;
      throw Error(error).code(ErrorCode::invalid_argument);
    }
  }

  /// A unit of work for one rank: a chunk or an entry without chunks, together with all entries
  /// that share its bytes.
  struct Unit {
    std::uint64_t size = 0;
    std::size_t piece = 0;
    std::vector<const Candidate*> entries;
  };

  void share_replicated() {
    std::map<std::pair<std::string, std::size_t>, Unit> units;  // by group and piece
    std::vector<std::unordered_map<std::string_view, const Candidate*>> of_ranks;
    for (const Outline& outline : outlines_) {
      auto& of_rank = of_ranks.emplace_back();
      for (const Candidate& entry : outline.replicated) of_rank.emplace(entry.path, &entry);
    }
    for (const Candidate& entry : outlines_.front().replicated) {
      if (!is_on_all_ranks(entry, of_ranks)) continue;
      made_.replicated.emplace(entry.path, std::vector<std::int64_t>(entry.sizes.size()));
      for (std::size_t i = 0; i < entry.sizes.size(); ++i) {
        Unit& unit = units[{entry.group, i}];
        unit.size = std::max(unit.size, entry.sizes[i]);
        unit.piece = i;
        unit.entries.push_back(&entry);
      }
    }
    add_unshared();
    std::vector<const Unit*> ordered;
    for (const auto& [key, unit] : units) ordered.push_back(&unit);
    std::ranges::stable_sort(ordered, std::greater<>(), &Unit::size);
    for (const Unit* unit : ordered) {
      const std::int64_t rank = unit->size == 0 ? 0 : least_loaded();
      loads_[static_cast<std::size_t>(rank)] += unit->size;
      for (const Candidate* entry : unit->entries) {
        made_.replicated.find(entry->path)->second[unit->piece] = rank;
      }
    }
  }

  /// Adds to the load of each rank the entries that it marked as replicated but that at least one
  /// other rank lacks, because the rank writes these entries itself.
  void add_unshared() {
    for (const Outline& outline : outlines_) {
      std::unordered_set<std::string_view> groups;
      for (const Candidate& entry : outline.replicated) {
        if (made_.replicated.contains(entry.path) || !groups.insert(entry.group).second) continue;
        std::uint64_t& load = loads_[static_cast<std::size_t>(outline.rank)];
        load = std::accumulate(entry.sizes.begin(), entry.sizes.end(), load);
      }
    }
  }

  static std::string chunks_text(const Candidate& entry) {
    const std::vector<std::int64_t> sizes(entry.sizes.begin(), entry.sizes.end());
    return "chunks of " + base::list_text(sizes) + " bytes";
  }

  bool is_on_all_ranks(
      const Candidate& entry,
      const std::vector<std::unordered_map<std::string_view, const Candidate*>>& of_ranks) const {
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
      if (!of_ranks[rank].contains(entry.path)) return false;
    }
    for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
      const Candidate& other = *of_ranks[rank].at(entry.path);
      if (other.description != entry.description) {
        fail_other(entry.path, static_cast<std::int64_t>(rank), entry.description,
                   other.description);
      }
      if (other.sizes != entry.sizes) {
        fail_other(entry.path, static_cast<std::int64_t>(rank), chunks_text(entry),
                   chunks_text(other));
      }
    }
    return true;
  }

  std::string where_;
  const std::vector<Outline>& outlines_;
  std::vector<std::uint64_t> loads_;
  Assignment made_;
};

}  // namespace

Shared share_work(const std::string& where, const std::vector<Outline>& outlines) {
  Assigner assigner(where, outlines);
  return {assigner.take(), assigner.num_bytes()};
}

}  // namespace tenfold::detail::snapshot_ranks
