"""The only place that knows `envoy_data_plane`: plans become encoded resources."""
