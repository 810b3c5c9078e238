#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "dataset/growth.hpp"
#include "formats/shared/parts_manifest.hpp"
#include "os/fs/lease.hpp"
#include "os/process.hpp"
#include "os/thread/fork_safe_lock.hpp"

namespace tenfold {

/// The rows of a data set of parts that is opened for writing. Appends rows to the last part.
/// Creates a new part if the last part does not support appends or has reached the size limit
/// (set_part_bytes()). The manifest marks a part as open before rows are appended to it, and as
/// closed after its writer was closed.
class PartsGrowth final : public Growth {
 public:
  explicit PartsGrowth(const Path& path);

  std::shared_ptr<const DatasetState> state() override;
  std::int64_t size() override;
  std::int64_t append(const Batch& rows) override;
  void update(std::span<const std::int64_t> positions, const Batch& rows) override;
  void flush() override;
  void close() override;
  void refresh() override;
  std::int64_t capacity() override { return 0; }
  std::int64_t cursor() override { return size(); }

 private:
  using Lock = std::lock_guard<os::RenewingMutex>;

  const std::shared_ptr<const DatasetState>& current();
  std::int64_t num_rows();
  void require_open(const char* what) const;
  void start();
  bool continue_last();
  void begin_part();
  void seal_writer();
  void publish(detail::formats::PartsManifest manifest);
  void release() noexcept;
  void renew() noexcept;

  const Path path_;
  os::Directory folder_;
  const os::OwnProcess opener_{};                 ///< the process that locked `folder_`
  os::RenewingMutex mutex_{[this] { renew(); }};  ///< guards the members below
  std::shared_ptr<const DatasetState> state_;
  std::optional<Schema> schema_;             ///< the schema when the data set was first opened
  std::optional<os::Lease> lease_;           ///< held since the first append of rows
  os::OwnProcess process_;                   ///< the process that acquired the lease
  detail::formats::PartsManifest manifest_;  ///< valid while the lease is held
  std::optional<Dataset> writer_;            ///< appends to the last part
  std::uint64_t writer_bytes_ = 0;           ///< bytes of the tensors of the last part
  bool closed_ = false;
};

/// Sets the size in bytes at which a part is closed and a new one begins. Returns the previous
/// value. For tests.
std::uint64_t set_part_bytes(std::uint64_t bytes) noexcept;

}  // namespace tenfold
