# Header, libraries, program, pkg-config and CMake package files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES include/gradwire.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS gradwire_shared EXPORT gradwireTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS gradwire_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET gradwire)
  install(TARGETS gradwire RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

foreach(shim ${GW_MPI_SHIMS})
  install(TARGETS ${shim} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/gradwire)
endforeach()

configure_file(cmake/gradwire.pc.in ${CMAKE_BINARY_DIR}/gradwire.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set_target_properties(gradwire_shared PROPERTIES EXPORT_NAME gradwire)
install(EXPORT gradwireTargets NAMESPACE gradwire:: FILE gradwireConfig.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradwireConfigVersion.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gradwire)
