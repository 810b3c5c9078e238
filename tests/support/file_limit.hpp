#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace tenfold::test {

/// While this object exists, this process can open at most `num_files` more files.
class FileLimit {
 public:
  explicit FileLimit(rlim_t num_files) {
    getrlimit(RLIMIT_NOFILE, &old_);
    const int lowest_free = ::dup(0);
    ::close(lowest_free);
    rlimit limit = old_;
    limit.rlim_cur = static_cast<rlim_t>(lowest_free) + num_files;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &old_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit old_{};
};

}  // namespace tenfold::test
