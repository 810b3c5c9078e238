#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include <tenfold/error.hpp>

namespace tenfold::test {

/// Returns the message of the Error that `call` throws. Fails the test if the Error has another
/// code, or if `call` throws nothing.
std::string message_of(const auto& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

/// Fails the test unless `call` throws an Error with this code and a message that contains `text`.
void expect_error(ErrorCode code, const std::string& text, const auto& call) {
  EXPECT_THAT(message_of(call, code), testing::HasSubstr(text));
}

}  // namespace tenfold::test
