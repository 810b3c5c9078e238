// The format of a data set of parts: a folder with `%parts.json`. It is opened as the tree of the
// data set that compact() would write.

#include <string>
#include <utility>

#include <tenfold/error.hpp>

#include "base/fail.hpp"
#include "base/hash/checksum.hpp"
#include "base/text.hpp"
#include "dataset/parts/leaf_source.hpp"
#include "dataset/parts/part.hpp"
#include "formats/format.hpp"
#include "formats/shared/folder_checksums.hpp"
#include "formats/shared/folder_verify.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "formats/shared/problem.hpp"
#include "formats/shared/progress.hpp"
#include "os/fs/unreplaced.hpp"

namespace tenfold::detail::formats::parts {
namespace {

bool probe(const FileHead& head) { return head.is_folder() && has_parts_manifest(head.folder()); }

TensorDict open(const FileHead& head, const OpenRequest&) {
  return open_parts(head.take_folder(), head.path());
}

/// Adds the problems of one part to `report`. First opens the part as a reader does, then checks
/// the bytes of its files.
void verify_part(PartsFolder& folder, std::size_t number, const Path& path,
                 const VerifyRequest& request, VerifyReport& report) {
  const PartEntry& part = folder.manifest().parts[number];
  const std::string display = folder.display_of(number);
  try {
    static_cast<void>(folder.open(number));
    const VerifyReport found = formats::folder::kFormat.verify(path / part.path, request);
    add_report(report, found);
    if (part.is_open || !found.ok()) return;
    const auto checksum = checksum_of_part(open_part_folder(folder.directory(), part.path));
    const auto text = [](const std::optional<std::uint64_t>& sum) {
      return sum ? base::hex16(*sum) : std::string("none");
    };
    if (part.checksum != checksum) {
      report.problems.push_back(
          problem_of(base::corrupt(display)
                         .part(kChecksumsName, ": checksum")
                         .problem("the part was written again since it was committed")
                         .expected(text(part.checksum), ", the value in ", kPartsName)
                         .found(text(checksum))));
    } else if (found.num_bytes != part.num_bytes) {
      report.problems.push_back(
          problem_of(base::corrupt(display)
                         .part("num_bytes")
                         .expected(part.num_bytes, ", the number in ", kPartsName)
                         .found(found.num_bytes)));
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::io) throw;
    report.problems.push_back(problem_of(error, display));
  }
}

VerifyReport verify(const Path& path, const VerifyRequest& request) {
  VerifyReport report;
  std::string text_before;
  for (int num_reads = 0; num_reads < os::kMaxReads; ++num_reads) {
    std::shared_ptr<PartsFolder> folder;
    try {
      folder = PartsFolder::open(os::Directory::open(path), path);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io || error.code() == ErrorCode::file_not_found) throw;
      report = {};
      report.problems.push_back(problem_of(error, path.string()));
      return report;
    }
    // Report the problems of the last pass only if no other process has changed the manifest since
    // the pass began. An append marks a part as open in the manifest before it adds rows.
    std::string text = parts_manifest_text(folder->manifest());
    if (text == text_before) return report;
    text_before = std::move(text);
    report = {};
    Progress progress(request.monitor, 0, "verify");
    for (std::size_t i = 0; i < folder->num_parts(); ++i) {
      progress.poll();
      verify_part(*folder, i, path, request, report);
    }
    if (report.ok()) return report;
  }
  return report;
}

}  // namespace

const Format kFormat = {
    .name = "parts",
    .noun = "a data set of parts",
    .suffixes = {},
    .probe = probe,
    .open_tree = open,
    .check_tree = nullptr,
    .write_tree = nullptr,
    .verify = verify,
};

}  // namespace tenfold::detail::formats::parts
