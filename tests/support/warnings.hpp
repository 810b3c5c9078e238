#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <tenfold/warnings.hpp>

namespace tenfold::test {

/// Collects warnings during its lifetime. Only one instance may exist at a time.
class Warnings {
 public:
  Warnings() {
    list().clear();
    previous_ = set_warning_handler([](const std::string& message) {
      const std::lock_guard lock(mutex());
      list().push_back(message);
    });
  }
  ~Warnings() { set_warning_handler(previous_); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  const std::vector<std::string>& all() const { return list(); }

 private:
  static std::vector<std::string>& list() {
    static std::vector<std::string> messages;
    return messages;
  }
  static std::mutex& mutex() {
    static std::mutex guard;
    return guard;
  }
  WarningHandler previous_ = nullptr;
};

}  // namespace tenfold::test
