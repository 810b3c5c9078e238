#include <array>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tenfold/error.hpp>

#include "base/text.hpp"
#include "codecs/zip/structure.hpp"
#include "codecs/zip/zip.hpp"
#include "core/tree/aliases.hpp"
#include "formats/format.hpp"
#include "formats/numpy/npy_array.hpp"
#include "formats/numpy/npz_source.hpp"
#include "formats/shared/commit.hpp"
#include "formats/shared/progress.hpp"
#include "formats/shared/zip_archive.hpp"
#include "formats/shared/zip_check.hpp"

// Several NumPy files in one zip archive, as numpy.savez writes them: a dict of tensors, whose keys
// are the members' names without ".npy", folders of the archive included ("a/b"). What is written
// is stored, not deflated, with its elements at multiples of 64 bytes, so that they are mapped.

namespace tenfold::detail::formats::numpy {
namespace {

constexpr std::array<std::string_view, 1> kNpzSuffixes = {".npz"};
constexpr std::uint32_t kAlignment = 64;
constexpr std::size_t kLocalHeaderBytes = 30;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kMaxNameBytes = 65'535;

/// Known by its first member: a torch file begins with another one, an archive of a folder too.
bool probe_npz(const Path& path) {
  if (!os::file_info(path).is_regular) return false;
  const os::File file = os::File::open_read(path);
  std::string head(kLocalHeaderBytes + 4096, '\0');
  head.resize(file.read_some_at(0, std::as_writable_bytes(std::span(head))));
  constexpr std::string_view kEmptyArchive = "PK\x05\x06";
  // numpy.savez of nothing, or ours with a comment: an end record alone.
  if (head.starts_with(kEmptyArchive)) {
    return file.size_bytes() == kEndBytes ||
           file.size_bytes() == kEndBytes + codecs::kZipStructureCommentBytes;
  }
  if (!head.starts_with("PK\x03\x04") || head.size() < kLocalHeaderBytes) return false;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(head[at]); };
  const std::size_t name_bytes = byte(26) | static_cast<std::size_t>(byte(27)) << 8U;
  return head.substr(kLocalHeaderBytes, name_bytes).ends_with(".npy");
}

TensorDict tree_of(const std::shared_ptr<NpzSource>& source, const std::string& where) {
  auto node = std::make_shared<Node>();
  node->info.kind = NodeKind::dict;
  node->where = where;
  node->keep = source;
  const auto& entries = source->directory().entries;
  node->entries.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    node->entries.push_back({NpzSource::key_of(entries[i]), source->slot(i)});
  }
  return TensorDict(std::move(node));
}

TensorDict open_npz(const Path& path, const OpenRequest& request) {
  if (request.mode == Mode::write_through) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": mode: an archive of NumPy files cannot be written through: expected \"r\" "
                    "or \"c\", found \"r+\"; save it as a memmap folder");
  }
  return tree_of(std::make_shared<NpzSource>(os::File::open_read(path)), path.string());
}

[[noreturn]] void refuse(const std::string& key, const std::string& what) {
  refuse_for_npy("npz", "key " + base::quote(key), what);
}

std::string member_name(const std::string& key) {
  std::string member = key + ".npy";
  if (const auto fault = codecs::zip_name_fault(member)) {
    refuse(key, "no member can have the name: it " + std::string(*fault) +
                    ": expected a relative path in UTF-8, found " + base::quote(member));
  }
  if (member.size() > kMaxNameBytes) {
    refuse(key, "its name is too long: expected at most " + std::to_string(kMaxNameBytes) +
                    " bytes, found " + std::to_string(member.size()));
  }
  return member;
}

void check_root(const NodeInfo& info) {
  NodeInfo plain = info;
  if (plain.kind == NodeKind::ordered_dict) plain.kind = NodeKind::dict;  // order is kept
  check_npy_root("npz", plain);
  if (info.int_keys || !info.typed_keys.empty()) {
    const bool ints = info.int_keys;
    refuse_for_npy("npz", "root",
                   std::string(ints ? "integer keys" : "keys that are no text") +
                       " cannot be stored: expected strings, found " +
                       (ints ? "integers" : "others"));
  }
}

/// The members of a tree, or Error(unsupported) naming the first key that does not fit.
std::vector<ZipArchiveEntry> members_of(const TensorDict& tree) {
  check_root(tree.info());
  std::vector<ZipArchiveEntry> members;
  std::vector<std::string> keys;
  AliasFinder aliases;
  tree.for_each([&](const std::string& key, const TensorDict::Item& item) {
    const auto* leaf = std::get_if<Leaf>(&item);
    if (leaf == nullptr) {
      const bool is_value = std::holds_alternative<NonTensor>(item);
      refuse(key, std::string("it cannot be stored: expected a tensor, found a ") +
                      (is_value ? "JSON value"
                                : "node; flatten_keys(\"/\") makes one level of a "
                                  "TensorDict"));
    }
    check_npy_leaf("npz", key, *leaf);
    const std::size_t first = aliases.add(*leaf);
    if (first != keys.size()) {
      refuse(key,
             "that tensors are one cannot be stored: expected memory of its own, found that "
             "of key " +
                 base::quote(keys[first]) + "; store a copy of it, or another format");
    }
    keys.push_back(key);
    members.push_back({member_name(key), npy_head_of(*leaf), *leaf, kAlignment});
  });
  return members;
}

void check_npz(const TensorDict& tree) { members_of(tree); }

void write_npz(const TensorDict& tree, const Path& path, const WriteRequest& request) {
  if (request.zeros) {
    throw Error(ErrorCode::unsupported,
                path.string() +
                    ": memmap_like: an archive of NumPy files cannot be written through: expected "
                    "a folder, found a name that ends in \".npz\"");
  }
  const std::vector<ZipArchiveEntry> members = members_of(tree);
  std::uint64_t total_bytes = 0;
  for (const ZipArchiveEntry& member : members) total_bytes += member.leaf->nbytes();
  Progress progress(request.monitor, total_bytes, path.filename().string());
  FileReplacement replacement(path, total_bytes);
  write_zip_archive(replacement.file(), members, request, progress);
  replacement.publish(request.durable);
  progress.finish();
}

/// Adds what was thrown about `path` as a problem of `part`.
void add_problem(VerifyReport& report, const Path& path, const std::string& part,
                 const Error& error) {
  if (error.code() != ErrorCode::corrupt && error.code() != ErrorCode::unsupported) throw error;
  std::string what = error.what();
  for (const std::string& prefix : {path.string() + ": ", part + ": "}) {
    if (what.starts_with(prefix)) what.erase(0, prefix.size());
  }
  report.problems.push_back({path.string(), part, std::move(what)});
}

/// The archive's own CRC-32 of every member, and that its header fits it.
VerifyReport verify_npz(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  Progress progress(request.monitor, os::file_info(path).size_bytes, path.filename().string());
  try {
    const auto source = std::make_shared<NpzSource>(os::File::open_read(path));
    const codecs::ZipInput input = source->input();
    try {
      codecs::check_zip_structure(input, source->directory(), "save it again");
    } catch (const Error& error) {
      add_problem(report, path, "archive", error);
    }
    const auto& entries = source->directory().entries;
    std::vector<std::size_t> wanted;
    std::vector<const codecs::ZipEntry*> checked;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      // Not skips(): a member that is no tensor is no leaf, and no reason to refuse the others.
      if (request.filter != nullptr && !request.filter->wants(source->where(i))) continue;
      wanted.push_back(i);
      checked.push_back(&entries[i]);
    }
    const std::vector<std::exception_ptr> errors =
        check_zip_entries(input, checked, request.num_threads, progress);
    for (std::size_t at = 0; at < wanted.size(); ++at) {
      const std::size_t i = wanted[at];
      const std::string part = "member " + base::quote(entries[i].name);
      try {
        if (errors[at]) std::rethrow_exception(errors[at]);
        ++report.num_checksums;
        const Node::Slot slot = source->slot(i);
        if (const auto* lazy = std::get_if<std::shared_ptr<LazyItem>>(&slot)) (*lazy)->load();
        ++report.num_leaves;
        report.num_bytes += std::get<Leaf>(slot).nbytes();
      } catch (const Error& error) {
        add_problem(report, path, part, error);
      }
    }
  } catch (const Error& error) {
    add_problem(report, path, "directory", error);
  }
  progress.finish();
  return report;
}

}  // namespace

const Format kNpz = {"npz", kNpzSuffixes, probe_npz, open_npz, check_npz, write_npz, verify_npz};

}  // namespace tenfold::detail::formats::numpy
