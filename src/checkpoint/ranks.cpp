#include "checkpoint/ranks.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/document.hpp"
#include "checkpoint/entries.hpp"
#include "checkpoint/shard_ticket.hpp"
#include "core/value/value_json.hpp"
#include "io/tree.hpp"
#include "os/fs/directory.hpp"

namespace tenfold::checkpoint {

using namespace detail;

namespace {

constexpr std::uint64_t kHashedBytes = std::uint64_t{4} << 20;

/// Digests of an entry: of its keys, dtypes and shapes, and of its values that are not tensors.
struct Digests {
  base::Xxh3Stream structure;
  base::Xxh3Stream values;
};

/// Adds the length of a string and then the string to a digest. Without the lengths, different
/// sequences of strings could add the same bytes.
void add(base::Xxh3Stream& stream, std::string_view text) {
  const std::string length = std::to_string(text.size()) + ":";
  stream.update(std::as_bytes(std::span(length)));
  stream.update(std::as_bytes(std::span(text)));
}

void add_item(Digests& digests, const std::string& name, const TensorDict::Item& item) {
  add(digests.structure, name);
  if (const auto* leaf = std::get_if<Leaf>(&item)) {
    add(digests.structure, tenfold::to_string(leaf->dtype()));
    for (const std::int64_t size : leaf->shape()) add(digests.structure, std::to_string(size));
    add(digests.structure, "tensor");
  } else if (const auto* node = std::get_if<TensorDict>(&item)) {
    add(digests.structure, "(");
    node->for_each([&](const std::string& key, const TensorDict::Item& inner) {
      add_item(digests, key, inner);
    });
    add(digests.structure, ")");
  } else {
    add(digests.structure, "value");
    const auto& value = std::get<NonTensor>(item).value;
    try {
      add(digests.values, to_json(value, codecs::JsonStyle::python));
    } catch (const Error&) {
      // The content of a value is not compared if it has a string that is not UTF-8, or is nested
      // too deep.
      add(digests.values, "no UTF-8");
    }
  }
}

/// Returns the size of an entry's files, as rank 0 sees them.
std::uint64_t entry_bytes(const os::Directory& folder, const CheckpointEntry& entry) {
  const EntryPlace place = place_of(folder, entry.path);
  const auto info = place.folder.entry_info(place.name);
  if (!info) {
    throw base::file_not_found(place.folder.display_of(place.name)).problem("is missing");
  }
  if (info->is_directory) {
    return folder_bytes(os::Directory::open_at(place.folder, place.name));
  }
  return info->size_bytes;
}

}  // namespace

RankedSave::RankedSave(const CheckpointManager& manager, std::int64_t step,
                       const TensorDict& replicated, const CheckpointSaveOptions& options,
                       const RanksPlan& ranks)
    : state_(Internals::state(manager)) {
  const std::lock_guard lock(state_->mutex);
  save_ = state_->begin_save(step, replicated, options, ranks);
}

std::string RankedSave::ranks_path() const {
  if (save_->ranks_name.empty()) return {};
  return save_->replacement.hidden_name() + "/" + save_->ranks_name;
}

std::vector<std::string> RankedSave::tickets(int rank) const {
  std::vector<std::string> tickets;
  for (const ShardedEntry& sharded : save_->sharded) {
    tickets.push_back(sharded.writer.ticket(rank));
  }
  return tickets;
}

void RankedSave::write(Monitor* monitor) {
  save_->options.monitor = monitor;
  state_->write_entries(*save_);
}

Path RankedSave::publish(const std::vector<CheckpointEntry>& of_ranks,
                         const std::vector<std::vector<std::string>>& receipts) {
  const std::lock_guard lock(state_->mutex);
  const os::Directory& hidden = save_->replacement.folder();
  for (std::size_t i = 0; i < save_->sharded.size(); ++i) {
    std::vector<std::string> of_entry;
    for (const auto& of_rank : receipts) of_entry.push_back(of_rank.at(i));
    ShardedEntry& sharded = save_->sharded[i];
    sharded.writer.publish(of_entry);
    save_->info.entries.push_back(measured(sharded.planned.entry, hidden));
  }
  for (const CheckpointEntry& entry : of_ranks) {
    CheckpointEntry here = entry;
    here.path.replace(0, kRanksName.size(), save_->ranks_name);
    const std::uint64_t found = entry_bytes(hidden, here);
    if (found == entry.num_bytes) continue;
    throw Error::io(EIO, hidden.display_of(here.path))
        .expected(entry.num_bytes, " bytes, as rank ", *entry.rank, " wrote")
        .found(found);
  }
  save_->info.entries.insert(save_->info.entries.end(), of_ranks.begin(), of_ranks.end());
  return state_->publish(*save_);
}

std::vector<CheckpointEntry> write_rank_entries(const CheckpointManager& manager, std::int64_t step,
                                                const std::string& ranks_path, std::int64_t rank,
                                                const TensorDict& state, Monitor* monitor) {
  Internals::State& own = *Internals::state(manager);
  std::vector<PlannedEntry> plan =
      plan_entries(state, own.options.formats, (own.directory / step_folder_name(step)).string());
  os::Directory ranks = [&] {
    try {
      const EntryPlace place = place_of(os::Directory::open(own.directory), ranks_path);
      return os::Directory::open_at(place.folder, place.name);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::file_not_found) throw;
      throw Error::io(ENOENT, (own.directory / ranks_path).string())
          .expected("the folder that rank 0 created")
          .found("none")
          .remedy("all ranks must use the same shared directory");
    }
  }();
  const std::string name = std::to_string(rank);
  ranks.create_directory(name);
  os::Directory folder = os::Directory::open_at(ranks, name);
  const Listing listing = own.reader.list();
  const Step* latest = listing.latest();
  std::optional<Step> previous;
  if (latest != nullptr && latest->info.step != step) previous = *latest;
  const auto earlier = own.earlier_step(previous, false);
  std::vector<CheckpointEntry> entries;
  for (PlannedEntry& planned : plan) {
    planned.entry.rank = rank;
    entries.push_back(write_entry(planned, folder, earlier.get(), own.options.durable,
                                  own.options.num_threads, monitor));
    entries.back().path.insert(0, rank_folder(rank));
  }
  if (own.options.durable) folder.sync();
  return entries;
}

std::vector<std::string> write_shards(const CheckpointManager& manager,
                                      const std::vector<std::string>& tickets,
                                      const TensorDict& parts, Monitor* monitor) {
  std::vector<std::string> receipts;
  parts.for_each([&](const std::string&, const TensorDict::Item& item) {
    ShardTicket ticket = ShardTicket::parse(tickets.at(receipts.size()));
    // Use this host's path of the directory, which may differ from that of the coordinator's host.
    const Path staging(ticket.staging);
    ticket.staging =
        (manager.directory() / staging.parent_path().filename() / staging.filename()).string();
    std::vector<Tensor> tensors;
    if (const auto* node = std::get_if<TensorDict>(&item)) {
      for (const NamedLeaf& named : tensors_of(*node)) tensors.push_back(named.leaf.tensor());
    }
    ShardWriter writer(ticket.to_text());
    writer.write(0, tensors, Internals::state(manager)->options.num_threads, monitor);
    receipts.push_back(writer.finish());
  });
  return receipts;
}

std::uint64_t planned_bytes(const CheckpointManager& manager, const TensorDict& state) {
  return bytes_of(plan_entries(state, Internals::state(manager)->options.formats,
                               manager.directory().string()));
}

std::vector<EntryDigest> entry_digests(const TensorDict& state) {
  std::vector<EntryDigest> all;
  state.for_each([&](const std::string& name, const TensorDict::Item& item) {
    Digests digests;
    add_item(digests, name, item);
    all.push_back(
        {name, base::hex16(digests.structure.digest()), base::hex16(digests.values.digest())});
  });
  return all;
}

std::vector<std::pair<std::string, std::string>> tensor_digests(const TensorDict& state) {
  std::vector<std::pair<std::string, std::string>> all;
  std::vector<std::byte> block(kHashedBytes);
  state.for_each([&](const std::string& name, const TensorDict::Item& item) {
    base::Xxh3Stream stream;
    const auto* node = std::get_if<TensorDict>(&item);
    for (const NamedLeaf& named : node == nullptr ? std::vector<NamedLeaf>() : tensors_of(*node)) {
      const std::uint64_t size = named.leaf.nbytes();
      for (std::uint64_t at = 0; at < size; at += kHashedBytes) {
        const auto part =
            std::span(block).first(static_cast<std::size_t>(std::min(kHashedBytes, size - at)));
        named.leaf.read(at, part);
        stream.update(part);
      }
    }
    all.emplace_back(name, base::hex16(stream.digest()));
  });
  return all;
}

}  // namespace tenfold::checkpoint
