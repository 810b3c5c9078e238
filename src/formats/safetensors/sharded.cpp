#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "formats/format.hpp"
#include "formats/safetensors/file.hpp"
#include "formats/safetensors/leaf_source.hpp"
#include "formats/safetensors/sharded.hpp"
#include "formats/safetensors/tree.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/hub_index.hpp"
#include "formats/shared/json_checksums.hpp"
#include "formats/shared/problem.hpp"
#include "os/fs/directory.hpp"
#include "os/fs/file.hpp"

namespace tenfold::detail::formats::safetensors {
namespace {

constexpr std::array<std::string_view, 1> kShardedSuffixes = {".safetensors.index.json"};
/// The default shard size of huggingface_hub's save_torch_state_dict(): 5 GB, decimal.
constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

bool probe_index(const FileHead& head) {
  if (!head.is_file() || head.info().size_bytes > kMaxHubIndexBytes) return false;
  const std::string_view start = head.head().substr(0, 64);
  const std::size_t first = start.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || start[first] != '{') return false;
  return head.file().read_all(kMaxHubIndexBytes).find("\"weight_map\"") != std::string::npos;
}

/// An index and all its shards. All files are open, so that replacing them does not affect what is
/// read.
struct OpenedShards {
  os::File index_file;
  std::string index_text;
  HubIndex index;
  std::vector<OpenedFile> shards;
};

/// Opens an index and its shards. If a concurrent save replaces the index, it may remove the shards
/// before they are opened. The callers of Format::open() and Format::verify() detect this with
/// os::read_unreplaced(), and retry.
OpenedShards open_indexed_shards(const Path& path) {
  OpenedShards opened;
  opened.index_file = os::File::open_read(path);
  opened.index_text = opened.index_file.read_all(kMaxHubIndexBytes);
  opened.index = parse_hub_index(opened.index_text, opened.index_file.display());
  const os::Directory folder = folder_of_shards(path, opened.index);
  for (os::File& shard : open_indexed(folder, opened.index, opened.index_file.display())) {
    opened.shards.push_back(open_file(std::move(shard)));
  }
  return opened;
}

/// Builds the tree from the tensors in the order of the weight map, which must name exactly the
/// tensors in the shards.
TensorDict tree_of(const OpenedShards& opened) {
  const std::string& where = opened.index_file.display();
  TensorEntries tensors;
  std::size_t num_entries = 0;
  for (const OpenedFile& shard : opened.shards) {
    tensors.files.push_back({shard.header, shard.source});
    num_entries += shard.header->entries.size();
  }
  tensors.rows.reserve(opened.index.weight_map.size());
  tensors.index.reserve(opened.index.weight_map.size());
  const auto name_of = [&](std::uint32_t row) { return tensors.name(row); };
  for (const auto& [name, shard] : opened.index.weight_map) {
    const std::uint32_t entry = opened.shards[shard].header->find(name);
    if (entry == KeyIndex::kNone) {
      throw not_in_shard(name, opened.index.shards[shard], where);
    }
    tensors.rows.push_back({shard, entry});
    tensors.index.insert(name, static_cast<std::uint32_t>(tensors.rows.size() - 1), name_of);
  }
  if (num_entries != tensors.rows.size()) {
    for (std::size_t s = 0; s < opened.shards.size(); ++s) {
      const Header& header = *opened.shards[s].header;
      for (std::size_t i = 0; i < header.entries.size(); ++i) {
        const std::uint32_t row = tensors.find(header.name(i));
        if (row != KeyIndex::kNone && tensors.rows[row].file == s) continue;
        throw base::corrupt(where)
            .part("tensor ", base::quote(header.name(i)))
            .problem("not in the index")
            .expected("\"weight_map\" to assign it to ", base::quote(opened.index.shards[s]))
            .found("no such entry");
      }
    }
  }
  return build_tree(std::move(tensors), opened.index.metadata, where);
}

TensorDict open_index(const FileHead& head, const OpenRequest& /*request*/) {
  return tree_of(open_indexed_shards(head.path()));
}

}  // namespace

ShardedPlan plan_shards(const TensorDict& tree, bool notes, std::uint64_t shard_size_bytes,
                        const std::function<bool(const Leaf&)>& is_last) {
  const std::uint64_t limit = shard_size_bytes == 0 ? kDefaultShardBytes : shard_size_bytes;
  ShardedPlan result;
  result.plan = make_plan(tree, notes);
  result.plan.metadata.erase(std::string(kFormatMember));
  std::vector<Plan::Tensor>& tensors = result.plan.tensors;
  auto first_last = tensors.end();
  if (is_last) {
    first_last =
        std::stable_partition(tensors.begin(), tensors.end(),
                              [&](const Plan::Tensor& tensor) { return !is_last(tensor.leaf); });
  }
  std::uint64_t shard_bytes = 0;
  for (auto at = tensors.begin(); at != tensors.end(); ++at) {
    Plan::Tensor& tensor = *at;
    const std::uint64_t size = tensor.leaf.nbytes();
    if (result.shards.empty() || at == first_last || shard_bytes > limit ||
        size > limit - shard_bytes) {
      result.shards.emplace_back();
      shard_bytes = 0;
    }
    result.index.weight_map.emplace_back(tensor.name,
                                         static_cast<std::uint32_t>(result.shards.size() - 1));
    result.shards.back().tensors.push_back(std::move(tensor));
    shard_bytes += size;
    result.total_bytes += size;
  }
  if (result.plan.flat && notes) {
    std::vector<std::string_view> names;
    for (const auto& [name, shard] : result.index.weight_map) names.push_back(name);
    add_order(result.plan, names);
  }
  result.index.metadata = result.plan.metadata;
  for (Shard& shard : result.shards) {
    for (const std::size_t i : reference_order(shard.tensors)) {
      shard.ordered.push_back(&shard.tensors[i]);
    }
  }
  return result;
}

Metadata shard_metadata() { return {{std::string(kFormatMember), "pt"}}; }

namespace {

void check_plan(const TensorDict& tree) {
  const ShardedPlan plan = plan_shards(tree, true, 0);
  for (const Shard& shard : plan.shards) header_of(shard.ordered, shard_metadata());
}

/// Formats the index; with `checksums`, including its own checksum.
std::string index_text(HubIndex index, std::uint64_t total_bytes, bool checksums) {
  if (checksums) {
    index.metadata.insert_or_assign(std::string(kChecksumsMember), std::string(16, '0'));
  }
  std::string text = write_hub_index(index, total_bytes);
  if (checksums) {
    const std::size_t at = find_checksums(text);
    text.replace(at, 16, base::hex16(hash_with_blank_digits(text, at)));
  }
  return text;
}

std::vector<std::string> shards_of_index(const os::File& file) {
  return parse_hub_index(file.read_all(kMaxHubIndexBytes), file.display()).shards;
}

/// Returns the shards of the existing index; none if there is no index.
std::vector<std::string> shards_of_present_index(const os::Parent& parent) {
  const os::File index = os::File::try_open_read_at(parent.directory, parent.name);
  return index.valid() ? shards_of_index(index) : std::vector<std::string>();
}

[[noreturn]] void refuse_index(const Path& path, const std::string& found) {
  throw base::unsupported(path.string())
      .problem("an index of shards cannot be written")
      .expected("save() to \"<name>.safetensors.index.json\"")
      .found(found);
}

}  // namespace

IndexReplacement::IndexReplacement(const Path& path, const ShardedPlan& plan, bool durable)
    : durable_(durable), parent_(os::open_parent(os::resolve_link(path), true)) {
  if (!parent_.name.ends_with(kShardedSuffixes[0]) ||
      parent_.name.size() == kShardedSuffixes[0].size()) {
    refuse_index(path, base::quote(parent_.name));
  }
  // Take a slot of the index first, so that concurrent saves use different names for shards.
  index_.emplace(path, plan.total_bytes);
  shards_.emplace(parent_.directory, parent_.name, *index_,
                  [this] { return shards_of_present_index(parent_); });
  names_ = shards_->name_shards(plan.shards.size(), durable_);
}

void IndexReplacement::add_value_shards(std::size_t count) {
  const std::vector<std::string> added = shards_->name_shards(count, durable_, "-values");
  names_.insert(names_.end(), added.begin(), added.end());
}

void IndexReplacement::publish(const ShardedPlan& plan, bool checksums) {
  // The directory entries of the shards must be durable before the index is.
  if (durable_) parent_.directory.sync();
  HubIndex named = plan.index;
  named.shards = names_;
  const std::string text = index_text(std::move(named), plan.total_bytes, checksums);
  index_->file().write_at(0, std::as_bytes(std::span(text)));
  shards_->about_to_commit();
  index_->publish(durable_, [this](const os::File& old) {
    // The replaced index may be that of another save, published after this save began. If the
    // replaced index cannot be read, no old shards are removed.
    shards_->set_old_shards({});
    shards_->set_old_shards(shards_of_index(old));
  });
  shards_->committed(durable_);
}

namespace {

void write_index(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  if (request.zeros) refuse_index(path, "memmap_like");
  const ShardedPlan plan = plan_shards(tree, request.notes, request.shard_size_bytes);
  for (const Shard& shard : plan.shards) header_of(shard.ordered, shard_metadata());
  IndexReplacement replacement(path, plan, request.durable);
  Progress progress(request.monitor, plan.total_bytes, path.filename().string());
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    os::File file = replacement.create_shard(i);
    write_file(file, plan.shards[i].ordered, shard_metadata(), request, progress);
    if (request.durable) file.sync();
    file.close_written();
  }
  replacement.publish(plan, request.checksums);
  progress.finish();
}

/// Compares the index with its checksum. parse_hub_index() finds no checksum if the key "metadata"
/// is damaged, so this searches the text. Outside of "metadata", a value only counts if it has the
/// form of a checksum, because a tensor may be called "tenfold_xxh3".
void check_index(const OpenedShards& opened, VerifyReport& report) {
  const std::string_view text = opened.index_text;
  const std::size_t at = find_checksums(text);
  const auto stored = opened.index.metadata.find(kChecksumsMember);
  std::string_view digits;
  if (at != std::string_view::npos) digits = text.substr(at, text.find('"', at) - at);
  if (stored == opened.index.metadata.end()) {
    if (!parse_hex16(digits)) return;
  } else {
    digits = stored->second;
  }
  const std::string& where = opened.index_file.display();
  ++report.num_checksums;
  if (at == std::string_view::npos || digits.size() != 16) {
    report.problems.push_back(
        problem_of(base::corrupt({where, "metadata \"tenfold_xxh3\""})
                       .problem("cannot be read")
                       .expected("16 hexadecimal digits as tenfold writes them")
                       .found("another value")
                       .remedy("another tool may have changed the file")));
    return;
  }
  const std::string found = base::hex16(hash_with_blank_digits(opened.index_text, at));
  if (found != digits) {
    report.problems.push_back(
        problem_of(base::corrupt({where, "index"})
                       .problem("the checksum of ", text.size(), " bytes differs")
                       .expected(digits)
                       .found(found)
                       .remedy("the file is damaged or was changed")));
  }
}

VerifyReport verify_index(const Path& path, const VerifyRequest& request) {
  return verify_file(path, request, [&](VerifyReport& report) {
    OpenedShards opened = open_indexed_shards(path);
    tree_of(opened);
    check_index(opened, report);
    return std::move(opened.shards);
  });
}

}  // namespace

const Format kShardedFormat = {
    .name = "safetensors",
    .noun = "an index of safetensors files",
    .suffixes = kShardedSuffixes,
    .bare_roots = BareRoots::some,
    .probe = probe_index,
    .open_tree = open_index,
    .check_tree = check_plan,
    .write_tree = write_index,
    .verify = verify_index,
};

}  // namespace tenfold::detail::formats::safetensors
