"""The controllers that ship with aici, and the toolchain that builds one's own."""
