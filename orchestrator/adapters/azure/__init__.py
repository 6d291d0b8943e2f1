"""The Azure world: Cosmos DB, Service Bus, Blob Storage, Key Vault."""
